/** The choice of an attention, a layer and a head. */

import "./head_chooser.css";

import { attentionPlaces, chosenAttention, MEAN_OF_HEADS } from "../attention_axes.js";
import { type Session, useSession } from "../session.js";
import { ATTENTION_TITLES, TERMS, texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: { kind: "Attention", mean: "mean of all heads" },
  zh: { kind: "注意力", mean: "所有头的平均" },
});

/** `withMean`: offers the mean over all heads of the layer as well. */
export function HeadChooser({ session, withMean = true }: { session: Session; withMean?: boolean }) {
  useSession(session);
  const { store, model } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const titles = useTexts(store, ATTENTION_TITLES);
  if (model === null) return null;
  const { place, layer, head, isMean } = chosenAttention(model, store.state);
  const { [MEAN_OF_HEADS]: _, ...options } = store.state.options;
  const chooseHead = (value: string): void =>
    store.update(value === "mean" ? { options: { ...options, [MEAN_OF_HEADS]: "1" } } : { head: Number(value), options });
  return (
    <div class="controls">
      <div class="controls kinds" role="group" aria-label={text.kind}>
        {attentionPlaces(model).map(({ kind }) => (
          <button key={kind} type="button" aria-pressed={kind === place.kind} data-kind={kind} onClick={() => store.update({ attention: kind, query: -1, key: -1 })}>
            {titles[kind]}
          </button>
        ))}
      </div>
      <label>
        {terms.layer}
        <select class="choose-layer" value={layer} onChange={(event) => store.update({ layer: Number(event.currentTarget.value) })}>
          {Array.from({ length: place.numLayers }, (_value, index) => <option key={index} value={index}>{index + 1}</option>)}
        </select>
      </label>
      <label>
        {terms.head}
        <select class="choose-head" value={withMean && isMean ? "mean" : head} onChange={(event) => chooseHead(event.currentTarget.value)}>
          {withMean && place.numHeads > 1 && <option value="mean">{text.mean}</option>}
          {Array.from({ length: place.numHeads }, (_value, index) => <option key={index} value={index}>{index + 1}</option>)}
        </select>
      </label>
    </div>
  );
}
