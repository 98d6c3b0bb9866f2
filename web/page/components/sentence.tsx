/** The sentence to translate, its tokens, and those of the translation up to the step that is shown. */

import "./sentence.css";

import { groups } from "../pieces.js";
import { currentStep, type Session, targetLanguage, useSession } from "../session.js";
import { TERMS, texts, useTexts } from "../text.js";
import { Tokens } from "./tokens.js";

const TEXTS = texts({
  en: {
    placeholder: "Type a sentence", into: "Into", loading: "Loading the model…", translating: "Translating…", problem: "Problem",
    forced: (count: number) => (count === 1 ? "The first token is fixed." : `The first ${count} tokens are fixed.`),
    all_forced: "The whole translation is fixed.", clear: "Let the model choose",
  },
  zh: {
    placeholder: "输入一个句子", into: "译成", loading: "正在加载模型……", translating: "正在翻译……", problem: "出错",
    forced: (count: number) => `开头 ${count} 个词元已固定。`, all_forced: "整句译文已固定。", clear: "改由模型选择",
  },
});

/** What a change of the sentence or of the language leaves behind. */
const FRESH = { prefix: [], step: -1, query: -1, key: -1 };


export function Sentence({ session }: { session: Session }) {
  useSession(session);
  const { store, shown: run, status, languages, model } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const { to, words, language, prefix } = store.state;
  const displayNames = new Intl.DisplayNames([language === "zh" ? "zh-CN" : "en"], { type: "language" });
  const nameOf = (code: string): string => model?.manifest.languages?.[code]?.[language] ?? displayNames.of(code) ?? code;
  const step = currentStep(session);
  /** Another language keeps the text, but an example is replaced by that of the language. */
  const translateInto = (code: string): void => {
    const { examples = [] } = session.site ?? {};
    const isExample = examples.some((one) => one.text === store.state.text);
    store.update({ text: (isExample ? examples.find((one) => one.to === code)?.text : undefined) ?? store.state.text, to: code, ...FRESH });
  };
  const into = to || (model ? targetLanguage(model, to) : "") || "";
  return (
    <section class="sentence" aria-label={terms.source}>
      <form class="entry" onSubmit={(event) => event.preventDefault()}>
        <label class="visually-hidden" for="text">{text.placeholder}</label>
        <textarea
          id="text" rows={1} spellcheck={false} placeholder={text.placeholder} value={store.state.text}
          onInput={(event) => store.update({ text: event.currentTarget.value, ...FRESH })}
        />
        {languages.length > 1 && (
          <label class="controls">
            <span class="visually-hidden">{text.into}</span>
            <select value={into} onChange={(event) => translateInto(event.currentTarget.value)}>
              {languages.map((code) => <option key={code} value={code}>{`→ ${nameOf(code)}`}</option>)}
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
            store={store} side="target" title={terms.target} groups={groups(run.chosenPieces, { words })} offset={1} visible={step + 1} current={step} forced={prefix.length}
            onSelect={(index) => store.update({ step: index })}
          />
          {prefix.length > 0 && (
            <p class="forced-note small">
              {prefix.length >= run.chosen.length ? text.all_forced : text.forced(prefix.length)}{" "}
              <button type="button" onClick={() => store.update({ prefix: [], step: -1 })}>{text.clear}</button>
            </p>
          )}
          <output class="visually-hidden" aria-live="polite" data-output={run.output}>{run.output}</output>
        </>
      )}
    </section>
  );
}
