/** Three sentences beside the one of the page, so that there is a batch; all are traced by the same model. */

import type { Run, Session } from "../session.js";
import { each, useTask } from "../task.js";

/** Short sentences of different lengths. */
const SENTENCES: Record<string, readonly string[]> = {
  en: ["Good morning.", "Where is the train station?", "My sister reads a book in the garden every evening."],
  de: ["Guten Morgen.", "Wo ist der Bahnhof?", "Meine Schwester liest jeden Abend ein Buch im Garten."],
  zh: ["早上好。", "火车站在哪里？", "我妹妹每天晚上都在花园里看书。"],
};
const NUM_OTHERS = 3;

/** The other sentences: in the source's language, else other examples of the model, else beginnings of the sentence; none that may be too long for the model. */
export function otherSentences(session: Session, run: Run): string[] {
  const { directions, tags, model: { max_length } } = run.model.manifest;
  const target = session.store.state.to || tags[0];
  const sources = directions.filter((pair) => pair.target === target || tags.length === 0).flatMap(({ source }) => (source === null ? [] : [source]));
  const isHan = /\p{Script=Han}/u.test(run.text);
  const language = sources.includes("zh") && isHan ? "zh" : sources.find((code) => code !== "zh");
  const known = (language !== undefined && SENTENCES[language]) || [];
  const examples = (session.site?.examples ?? []).filter(({ model }) => model === run.model.manifest.name).map(({ text }) => text);
  const characters = [...run.text];
  const parts = [0.25, 0.5, 0.75].map((share) => characters.slice(0, Math.max(1, Math.round(share * characters.length))).join("").trim());
  return [...new Set([...known, ...examples, ...parts])].filter((text) => text !== run.text && text !== "" && text.length < max_length - 2).slice(0, NUM_OTHERS);
}

/** Whether the model can trace other sentences; a file with one recorded translation cannot. */
export function canTraceOthers(session: Session): boolean {
  return session.siteModel?.kind !== "recorded";
}

/** The runs of the batch, with the sentence's own first; undefined until the others are traced. */
export function useBatch(session: Session, run: Run): Run[] | undefined {
  const { to } = session.store.state;
  const { result } = useTask(session, canTraceOthers(session) ? run : null, "batch of sentences", (report) =>
    each(otherSentences(session, run), (text) => session.trace(run.model, { text, to, prefix: [] }, run.interventions), report),
  );
  return result && [run, ...result];
}
