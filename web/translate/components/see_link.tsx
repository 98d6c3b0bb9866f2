/** The door to the page of `heedful see`: the same sentence, seen from inside the model. */

import { useStore } from "../../components/store.js";
import { texts, useTexts } from "../../components/text.js";
import type { Session } from "../session.js";

const TEXTS = texts({
  en: { see: "See inside", title: "How the model translates this sentence" },
  zh: { see: "查看内部", title: "查看模型如何翻译这个句子" },
});

/** `sentence`: which sentence of the translation; by default the one under the pointer, else the first. */
export function SeeLink({ session, sentence }: { session: Session; sentence?: number }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const address = useStore(store, () => session.seeAddress(sentence));
  if (address === null) return null;
  return <a class="button see-inside" href={address} title={text.title} target="_blank" rel="noopener">{text.see}</a>;
}
