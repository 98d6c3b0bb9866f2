// Calls a server with each client from npm and prints what they return as JSON: node clients.mjs URL
import { Translator } from "deepl-node";
import libre from "libretranslate";
import { libreTranslate } from "libretranslate-ts";
import { Translate } from "translate";

const url = process.argv[2];

const deepl = new Translator("a key", { serverUrl: url });
const texts = await deepl.translateText(["Good morning.", "The cat sleeps."], null, "de");
const marked = await deepl.translateText("<p>The <b>black</b> cat</p>", "en", "zh-HANS", { tagHandling: "xml" });
const glossary = await deepl.createGlossary("terms", "en", "de", new (await import("deepl-node")).GlossaryEntries({ entries: { cat: "Katze" } }));
const entries = (await deepl.getGlossaryEntries(glossary)).entries();
const [document] = [Buffer.from("Good morning.\n")];
const handle = await deepl.uploadDocument(document, "en", "de", { filename: "text.txt" });
const state = await deepl.getDocumentStatus(handle);

libreTranslate.setApiEndpoint(url);

const results = {
  "deepl-node": {
    texts: texts.map((result) => result.text),
    detected: texts.map((result) => result.detectedSourceLang),
    billed: texts.map((result) => result.billedCharacters),
    marked: marked.text,
    sources: (await deepl.getSourceLanguages()).map((language) => language.code),
    targets: (await deepl.getTargetLanguages()).map((language) => language.code),
    usage: (await deepl.getUsage()).character,
    pairs: (await deepl.getGlossaryLanguagePairs()).map((pair) => `${pair.sourceLang}-${pair.targetLang}`),
    glossary: { entries, listed: (await deepl.listGlossaries()).map((one) => one.name), count: glossary.entryCount },
    document: state.status,
  },
  "libretranslate-ts": {
    translation: await libreTranslate.translate("Good morning.", "en", "de", 2),
    detected: await libreTranslate.detect("Guten Morgen, wie geht es Ihnen heute?"),
    languages: await libreTranslate.listLanguages(),
    refused: await libreTranslate.translate("Good morning.", "en", "xx"),
  },
  libretranslate: await libre.translate({ query: "Good morning.", source: "en", target: "zh", apiurl: url }),
  translate: await Translate({ engine: "libre", url: `${url}/translate` })("Good morning.", { from: "en", to: "de" }),
};
await deepl.deleteGlossary(glossary);
console.log(JSON.stringify(results));
