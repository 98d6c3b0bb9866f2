/** One HTML file with the page, the translation of the unchanged model and its trace; it needs no server, model or network. */

import { record } from "../model/recording.js";
import { RECORDING_ID } from "../model/site.js";
import { type Session, targetLanguage } from "../session.js";
import { writeState } from "../state.js";

export async function htmlOfTranslation(session: Session): Promise<Blob> {
  const { base, siteModel, store } = session;
  if (base === null || siteModel === null) throw new Error("there is no translation yet");
  const { to } = store.state;
  const language = targetLanguage(base.model, to);
  const beamTree = await base.model.beamTree?.(base.text, language === undefined ? {} : { targetLanguage: language });
  const recording = await record(base, { title: siteModel.title, to, beamTree: beamTree ?? null });
  const [script, style] = await Promise.all(["page.js", "page.css"].map(async (name) => (await fetch(name)).text()));
  const safeScript = (script ?? "").replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
  const safeStyle = (style ?? "").replaceAll("</style", "<\\/style");
  const address = writeState({ ...store.state, text: base.text, prefix: [], interventions: [], run: "base" });
  const data = JSON.stringify({ recording, address }).replaceAll("<", "\\u003c");
  const policy =
    `default-src 'none'; script-src 'sha256-${await sha256(safeScript)}'; style-src 'sha256-${await sha256(safeStyle)}'; ` +
    "img-src data: blob:; connect-src data: blob:; base-uri 'none'; form-action 'none'";
  const title = `Heedful: ${base.text}`.replace(/[&<>]/g, (character) => `&#${character.charCodeAt(0)};`);
  const html =
    `<!doctype html>\n<html lang="${document.documentElement.lang}">\n<head>\n<meta charset="utf-8">\n` +
    `<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta http-equiv="Content-Security-Policy" content="${policy}">\n` +
    `<title>${title}</title>\n<style>${safeStyle}</style>\n<script type="application/json" id="${RECORDING_ID}">${data}</script>\n` +
    `<script type="module">${safeScript}</script>\n</head>\n<body></body>\n</html>\n`;
  return new Blob([html], { type: "text/html" });
}

async function sha256(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return btoa(String.fromCharCode(...new Uint8Array(digest)));
}
