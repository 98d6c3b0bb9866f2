/** Other translations of a text that is a single sentence; those of longer texts are with their words. */

import "./other_translations.css";

import { useStore } from "../../components/store.js";
import { texts, useTexts } from "../../components/text.js";
import type { Session } from "../session.js";

const TEXTS = texts({ en: { title: "Other translations" }, zh: { title: "其他译法" } });

export function OtherTranslations({ session }: { session: Session }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const translation = useStore(store, () => store.state.translation);
  const value = useStore(store, () => store.state.text);
  const [sentence, ...more] = translation?.sentences ?? [];
  if (translation === null || sentence === undefined || more.length > 0 || sentence.others.length === 0 || translation.text !== value) return null;
  return (
    <section class="panel others">
      <h2 class="small muted">{text.title}</h2>
      <ul class="plain-list">
        {sentence.others.map((other) => (
          <li key={other}><button type="button" class="option" lang={translation.to} onClick={() => void session.choose(0, other)}>{other}</button></li>
        ))}
      </ul>
    </section>
  );
}
