/** The three attentions of a run: which there are, which is chosen, and what their rows and columns are. */

import { chosenHead, chosenLayer, numLayers, stackOf } from "./chosen.js";
import type { PageModel } from "./model/site.js";
import { type Group, groups } from "./pieces.js";
import type { Run } from "./session.js";
import { ATTENTION_KINDS, type AttentionKind, type Hover, type State } from "./state.js";

/** An attention of a model, and how often there is one. */
export interface AttentionPlace {
  kind: AttentionKind;
  numLayers: number;
  numHeads: number;
}

/** The attentions of a model. Models that are no Transformer have cross-attention only, in all decoder layers or in one. */
export function attentionPlaces(model: PageModel): AttentionPlace[] {
  const { architecture, num_decoder_layers, num_heads } = model.manifest.model;
  if (architecture !== "transformer") return [{ kind: "cross", numLayers: architecture === "recurrent" ? 1 : num_decoder_layers, numHeads: 1 }];
  return ATTENTION_KINDS.map((kind) => ({ kind, numLayers: numLayers({ model }, stackOf(kind)), numHeads: num_heads }));
}

/** The attention, layer and head of the state, within those of the model. `isMean`: the mean over all heads of the layer. */
export interface ChosenAttention {
  place: AttentionPlace;
  layer: number;
  head: number;
  isMean: boolean;
}

/** The option that stands for all heads of a layer. */
export const MEAN_OF_HEADS = "attention.mean";

export function chosenAttention(model: PageModel, state: State): ChosenAttention {
  const places = attentionPlaces(model);
  const place = places.find(({ kind }) => kind === state.attention) ?? places[places.length - 1];
  if (place === undefined) throw new Error("the model has no attention");
  const { kind, numLayers: count, numHeads } = place;
  return {
    place,
    layer: Math.min(chosenLayer({ model }, { ...state, attention: kind }, stackOf(kind)), count - 1),
    head: Math.min(chosenHead({ model }, { ...state, attention: kind }), numHeads - 1),
    isMean: place.numHeads > 1 && state.options[MEAN_OF_HEADS] === "1",
  };
}

/** What the rows (queries) and columns (keys) of an attention matrix are. */
export interface Axes {
  queries: Group[];
  keys: Group[];
  querySide: Hover["side"];
  keySide: Hover["side"];
  /** In the decoder: what the step of each row predicts. */
  predicted: string[] | null;
}

export function axesOf(run: Run, kind: AttentionKind, words: boolean): Axes {
  const source = groups(run.sourcePieces, { words });
  if (kind === "encoder") return { queries: source, keys: source, querySide: "source", keySide: "source", predicted: null };
  const target = groups(run.targetPieces, { words });
  const predicted = target.map(({ start, end }) => spell(run.chosenPieces.slice(start, end)));
  return { queries: target, keys: kind === "cross" ? source : target, querySide: "target", keySide: kind === "cross" ? "source" : "target", predicted };
}

/** Pieces as one readable text. */
export function spell(pieces: readonly string[]): string {
  const [first, ...others] = groups(pieces, { words: false });
  const text = others.reduce((before, { text, kind }) => before + (kind === "word" ? " " : "") + (text === "‥" ? "" : text), first?.text ?? "");
  return text;
}

/** Index of the group that contains a subword; -1 if none does. */
export function groupAt(all: readonly Group[], index: number): number {
  return all.findIndex(({ start, end }) => index >= start && index < end);
}

/** How many source tokens stand before the sentence. */
export function numTags(model: PageModel): number {
  return model.manifest.tags.length > 0 ? 1 : 0;
}
