/** The sentence to translate, its tokens, and those of the translation up to the step that is shown. */

import { groups } from "../pieces.js";
import { currentStep, type Session, targetLanguage, useSession } from "../session.js";
import { TERMS, texts, useTexts } from "../text.js";
import { Tokens } from "./tokens.js";

const TEXTS = texts({
  en: {
    placeholder: "Type a sentence", into: "Into", loading: "Loading the model…", translating: "Translating…", problem: "Problem",
  },
  zh: { placeholder: "输入一个句子", into: "译成", loading: "正在加载模型……", translating: "正在翻译……", problem: "出错" },
});

export { currentStep };

export function Sentence({ session }: { session: Session }) {
  useSession(session);
  const { store, shown: run, status, languages, model } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const { to, words, language } = store.state;
  const names = new Intl.DisplayNames([language === "zh" ? "zh-CN" : "en"], { type: "language" });
  const step = currentStep(session);
  const into = to || (model ? targetLanguage(model, to) : "") || "";
  return (
    <section class="sentence" aria-label={terms.source}>
      <form class="entry" onSubmit={(event) => event.preventDefault()}>
        <label class="visually-hidden" for="text">{text.placeholder}</label>
        <textarea
          id="text" rows={1} spellcheck={false} placeholder={text.placeholder} value={store.state.text}
          onInput={(event) => store.update({ text: event.currentTarget.value, prefix: [], step: -1, query: -1, key: -1 })}
        />
        {languages.length > 1 && (
          <label class="controls">
            <span class="visually-hidden">{text.into}</span>
            <select value={into} onChange={(event) => store.update({ to: event.currentTarget.value, prefix: [], step: -1, query: -1, key: -1 })}>
              {languages.map((code) => <option key={code} value={code}>{`→ ${names.of(code) ?? code}`}</option>)}
            </select>
          </label>
        )}
      </form>
      {status.kind === "error" && <p class="problem" role="alert">{text.problem}: {status.message}</p>}
      {status.kind === "loading" && (
        <p class="muted small" role="status">
          {text.loading} {status.total > 0 && <progress max={status.total} value={status.received} aria-label={text.loading} />}
        </p>
      )}
      {run && (
        <>
          <Tokens
            store={store} side="source" title={terms.source} groups={groups(run.sourcePieces, { words })}
            onSelect={(key) => store.update({ key })}
          />
          <Tokens
            store={store} side="target" title={terms.target} groups={groups(run.chosenPieces, { words })} offset={1} visible={step + 1} current={step}
            onSelect={(index) => store.update({ step: index })}
          />
        </>
      )}
    </section>
  );
}
