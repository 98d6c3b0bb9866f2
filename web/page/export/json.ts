/** The translation as JSON: tokens, candidates of each step, and all attention weights. */

import type { Run, Session } from "../session.js";

const ATTENTION = ["encoder.layers.*.self_attention.weights", "decoder.layers.*.self_attention.weights", "decoder.layers.*.cross_attention.weights"];

export async function jsonOfTranslation(session: Session): Promise<Blob> {
  const { shown, siteModel } = session;
  if (shown === null || siteModel === null) throw new Error("there is no translation yet");
  return new Blob([JSON.stringify(await describe(shown, siteModel.name), null, 1)], { type: "application/json" });
}

async function describe(run: Run, model: string): Promise<object> {
  const { text, output, source, sourcePieces, target, targetPieces, chosen, chosenPieces, candidates, layerCandidates, interventions } = run;
  const { tensors } = await run.model.trace(text, { source, target: target.slice(1), wanted: ATTENTION, interventions });
  const attention = Object.fromEntries(Array.from(tensors, ([name, { shape, values }]) => [name, { shape, values: Array.from(values) }]));
  return {
    format: "heedful-translation", format_version: 1, model, text, translation: output, interventions,
    source: source.map((id, index) => ({ id, piece: sourcePieces[index] })),
    target: target.map((id, index) => ({ id, piece: targetPieces[index] })),
    chosen: chosen.map((id, index) => ({ id, piece: chosenPieces[index] })),
    candidates, layer_candidates: layerCandidates, attention,
  };
}
