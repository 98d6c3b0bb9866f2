import { load } from "./engine.js";

const form = document.querySelector("form");
const output = document.querySelector("output");

try {
  const model = await load("model.json", {
    onProgress: (received, total) => (output.value = `Loading the model… ${Math.round((100 * received) / total)} %`),
  });
  for (const language of model.manifest.tags) form.language.append(new Option(language));
  form.language.parentElement.hidden = model.manifest.tags.length < 2;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const [translation] = await model.translate(form.text.value, { targetLanguage: form.language.value || undefined });
      output.value = translation.text;
    } catch (error) {
      output.value = error.message;
    }
  });
  form.querySelector("button").disabled = false;
  output.value = "";
} catch (error) {
  output.value = error.message;
}
