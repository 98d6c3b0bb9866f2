/** Changes to the model as a wall of switches: one for each head, and one for each whole sublayer. */

import type { Intervention } from "../engine/src/index.js";
import { type Stack, type Sublayer, sublayersOf } from "./chosen.js";

/** One switch; without `head` that of a whole sublayer. */
export interface Switch {
  stack: Stack;
  sublayer: Sublayer;
  layer: number;
  head?: number;
}

export type SwitchState = "normal" | "remove" | "uniform";

/** The sizes of a model's parts. */
export interface Sizes {
  numHeads: number;
  numLayers: Record<Stack, number>;
}

/** Whether an intervention concerns a switch; what it does not name stands for all, as in the engine. */
export function covers(one: Intervention, place: Switch): boolean {
  return (
    one.stack === place.stack &&
    (one.sublayer === undefined || one.sublayer === place.sublayer) &&
    (one.layer === undefined || one.layer === place.layer) &&
    (one.head === undefined || one.head === place.head)
  );
}

export function stateOf(interventions: readonly Intervention[], place: Switch): SwitchState {
  const found = interventions.filter((one) => covers(one, place));
  if (found.some(({ kind }) => kind === "remove")) return "remove";
  return place.sublayer !== "feed_forward" && found.some(({ kind }) => kind === "uniform") ? "uniform" : "normal";
}

/** The interventions with one switch in another state. Wider ones that concern it are divided into those of the other switches. */
export function withState(interventions: readonly Intervention[], place: Switch, state: SwitchState, sizes: Sizes): Intervention[] {
  const others = interventions.flatMap((one) => {
    if (one.kind !== "remove" && one.kind !== "uniform") return [one];
    if (covers(one, place)) return divide(one, place, sizes);
    const isWithin = place.head === undefined && one.stack === place.stack && one.sublayer === place.sublayer && one.layer === place.layer;
    return isWithin ? [] : [one];
  });
  return state === "normal" ? others : [...others, { kind: state, ...place }];
}

/** An intervention on everything that it concerned apart from one switch. */
function divide(one: Intervention, place: Switch, sizes: Sizes): Intervention[] {
  const isUniform = one.kind === "uniform";
  if (one.sublayer === undefined) {
    const parts = sublayersOf(one.stack).filter((sublayer) => !(isUniform && sublayer === "feed_forward")).map((sublayer) => ({ ...one, sublayer }));
    return parts.flatMap((part) => (covers(part, place) ? divide(part, place, sizes) : [part]));
  }
  if (one.layer === undefined) {
    const parts = Array.from({ length: sizes.numLayers[one.stack] }, (_, layer) => ({ ...one, layer }));
    return parts.flatMap((part) => (covers(part, place) ? divide(part, place, sizes) : [part]));
  }
  if (one.head === undefined && place.head !== undefined) {
    return Array.from({ length: sizes.numHeads }, (_, head) => ({ ...one, head })).filter(({ head }) => head !== place.head);
  }
  return [];
}

export type Preset = "no_positions" | "no_cross_attention" | "uniform_cross_attention" | "one_head" | "unscaled" | "no_feed_forward";
export const PRESETS: readonly Preset[] = ["no_positions", "no_cross_attention", "uniform_cross_attention", "one_head", "unscaled", "no_feed_forward"];

export function preset(name: Preset, { numHeads }: Sizes): Intervention[] {
  const stacks = ["encoder", "decoder"] as const;
  switch (name) {
    case "no_positions":
      return stacks.map((stack) => ({ kind: "no_positions", stack }));
    case "no_cross_attention":
      return [{ kind: "remove", stack: "decoder", sublayer: "cross_attention" }];
    case "uniform_cross_attention":
      return [{ kind: "uniform", stack: "decoder", sublayer: "cross_attention" }];
    case "one_head":
      return stacks.flatMap((stack) =>
        sublayersOf(stack)
          .filter((sublayer) => sublayer !== "feed_forward")
          .flatMap((sublayer) => Array.from({ length: numHeads - 1 }, (_, index): Intervention => ({ kind: "remove", stack, sublayer, head: index + 1 }))),
      );
    case "unscaled":
      return stacks.map((stack) => ({ kind: "unscaled", stack }));
    case "no_feed_forward":
      return stacks.map((stack) => ({ kind: "remove", stack, sublayer: "feed_forward" }));
  }
}

/** Every head of a model, as switches. */
export function allHeads({ numHeads, numLayers }: Sizes): Switch[] {
  return (["encoder", "decoder"] as const).flatMap((stack) =>
    sublayersOf(stack)
      .filter((sublayer) => sublayer !== "feed_forward")
      .flatMap((sublayer) =>
        Array.from({ length: numLayers[stack] }, (_, layer) => Array.from({ length: numHeads }, (_value, head) => ({ stack, sublayer, layer, head }))).flat(),
      ),
  );
}

export function same(first: Intervention, second: Intervention): boolean {
  const names = ["kind", "stack", "sublayer", "layer", "head", "query", "key"] as const;
  return names.every((name) => first[name] === second[name]);
}
