/** Which layer, head, sublayer and token the state means in a run: counts differ between the stacks, so numbers are cut to what there is. */

import { labels } from "./pieces.js";
import type { Run } from "./session.js";
import type { AttentionKind, Hover, State } from "./state.js";

export type Stack = "encoder" | "decoder";
export type Sublayer = "self_attention" | "cross_attention" | "feed_forward";

/** A run, or a session with a model. */
type OfModel = Pick<Run, "model">;

export function numLayers(run: OfModel, stack: Stack): number {
  const { model } = run.model.manifest;
  return stack === "encoder" ? model.num_encoder_layers : model.num_decoder_layers;
}

/** The layer of the state, between 0 and the last of the stack. If none is chosen, the last; of cross-attention, the one that alignments are read from. */
export function chosenLayer(run: OfModel, state: State, stack: Stack): number {
  const last = numLayers(run, stack) - 1;
  const preset = stack === "decoder" && state.attention === "cross" ? run.model.manifest.alignment.layer : last;
  return Math.max(0, Math.min(state.layer < 0 ? preset : state.layer, last));
}

/** The head of the state. If none is chosen, the first; of cross-attention, the one that alignments are read from. */
export function chosenHead(run: OfModel, state: State): number {
  const { alignment, model } = run.model.manifest;
  const preset = state.attention === "cross" && state.layer < 0 ? (alignment.head ?? 0) : 0;
  return Math.max(0, Math.min(state.head < 0 ? preset : state.head, model.num_heads - 1));
}

export function stackOf(kind: AttentionKind): Stack {
  return kind === "encoder" ? "encoder" : "decoder";
}

/** The name of an attention's tensors, such as decoder.layers.0.cross_attention. */
export function attentionName(kind: AttentionKind, layer: number): string {
  return `${stackOf(kind)}.layers.${layer}.${kind === "cross" ? "cross_attention" : "self_attention"}`;
}

export function sublayersOf(stack: Stack): Sublayer[] {
  return stack === "encoder" ? ["self_attention", "feed_forward"] : ["self_attention", "cross_attention", "feed_forward"];
}

export function sideOf(stack: Stack): Hover["side"] {
  return stack === "encoder" ? "source" : "target";
}

/** The tokens that a stack reads; those of the decoder begin with the start token. */
export function tokensOf(run: Run, side: Hover["side"]): string[] {
  return labels(side === "source" ? run.sourcePieces : run.targetPieces).map(({ text }) => text);
}

/** The token of the state in a stack: the attended position in the encoder, the step in the decoder. */
export function chosenToken(run: Run, state: State, stack: Stack): number {
  const [count, chosen] = stack === "encoder" ? [run.source.length, state.key] : [run.target.length, state.step];
  return chosen < 0 ? count - 1 : Math.min(chosen, count - 1);
}
