/** The choices that several views share: attention, stack, layer, head and token. All of them live in the address. */

import { chosenHead, chosenLayer, chosenToken, numLayers, sideOf, stackOf, tokensOf, type Stack } from "../chosen.js";
import type { Run, Session } from "../session.js";
import { ATTENTION_KINDS } from "../state.js";
import { ATTENTION_TITLES, TERMS, texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: { attention: "Attention", token: "Token", stack: "Stack", rows: "A row of the decoder has the name of the token that the decoder reads there; it predicts the next one." },
  zh: { attention: "注意力", token: "词元", stack: "编码器或解码器", rows: "解码器的每一行以它在该处读入的词元命名，预测的是下一个词元。" },
});

export interface ChoiceProps {
  session: Session;
  run: Run;
}

export function AttentionChoice({ session: { store } }: ChoiceProps) {
  const text = useTexts(store, TEXTS);
  const titles = useTexts(store, ATTENTION_TITLES);
  return (
    <Choice
      name="attention" title={text.attention} value={store.state.attention} options={ATTENTION_KINDS.map((kind) => [kind, titles[kind]])}
      onChange={(value) => {
        const attention = ATTENTION_KINDS.find((kind) => kind === value);
        if (attention) store.update({ attention, query: -1, key: -1 });
      }}
    />
  );
}

export function LayerChoice({ session: { store }, run, stack = stackOf(store.state.attention) }: ChoiceProps & { stack?: Stack }) {
  const terms = useTexts(store, TERMS);
  const layer = chosenLayer(run, store.state, stack);
  const options = Array.from({ length: numLayers(run, stack) }, (_, index): [string, string] => [String(index), String(index + 1)]);
  return <Choice name="layer" title={terms.layer} value={String(layer)} options={options} onChange={(value) => store.update({ layer: Number(value) })} />;
}

export function HeadChoice({ session: { store }, run }: ChoiceProps) {
  const terms = useTexts(store, TERMS);
  const options = Array.from({ length: run.model.manifest.model.num_heads }, (_, index): [string, string] => [String(index), String(index + 1)]);
  return <Choice name="head" title={terms.head} value={String(chosenHead(run, store.state))} options={options} onChange={(value) => store.update({ head: Number(value) })} />;
}

export function StackChoice({ session: { store }, stack, onChange }: { session: Session; stack: Stack; onChange: (stack: Stack) => void }) {
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const options: [string, string][] = [["encoder", terms.encoder], ["decoder", terms.decoder]];
  return <Choice name="stack" title={text.stack} value={stack} options={options} onChange={(value) => onChange(value === "decoder" ? "decoder" : "encoder")} />;
}

export function TokenChoice({ session: { store }, run, stack }: ChoiceProps & { stack: Stack }) {
  const text = useTexts(store, TEXTS);
  const options = tokensOf(run, sideOf(stack)).map((token, index): [string, string] => [String(index), `${index} ${token}`]);
  return (
    <Choice
      name="token" title={text.token} value={String(chosenToken(run, store.state, stack))} options={options}
      onChange={(value) => store.update(stack === "encoder" ? { key: Number(value) } : { step: Number(value) })}
    />
  );
}

/** How the rows of decoder matrices are named; nothing for the encoder. */
export function RowNames({ session: { store }, stack }: { session: Session; stack: Stack }) {
  const text = useTexts(store, TEXTS);
  return stack === "decoder" ? <p class="muted small">{text.rows}</p> : null;
}

export interface SingleChoiceProps {
  /** Names the choice in `data-choice`. */
  name: string;
  title: string;
  value: string;
  options: readonly (readonly [value: string, label: string])[];
  onChange: (value: string) => void;
}

export function Choice({ name, title, value, options, onChange }: SingleChoiceProps) {
  return (
    <label>
      <span>{title}</span>
      <select data-choice={name} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([one, label]) => <option key={one} value={one}>{label}</option>)}
      </select>
    </label>
  );
}
