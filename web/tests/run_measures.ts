/** Calls the page's measures in Node: reads JSON from standard input, writes JSON. Used by tests/web. NaN travels as null. */

import { readFileSync } from "node:fs";

import type { Intervention } from "../engine/src/engine.js";
import { allHeads, preset, PRESETS, type Sizes, stateOf, type Switch, type SwitchState, withState } from "../page/interventions.js";
import { type Alignment, alignmentOf, hardLinks, pharaoh } from "../page/measures/alignment.js";
import { ranks, spearman } from "../page/measures/correlation.js";
import { argmax, divergence, logSoftmax } from "../page/measures/distributions.js";
import { type HeadPlaces, meanOverHeads, summariseHead } from "../page/measures/heads.js";
import { differences, firstDifference } from "../page/measures/sequences.js";

type Calls = {
  heads: [weights: number[], places: HeadPlaces][];
  means: [weights: number[], numHeads: number][];
  correlations: [number[], number[]][];
  distributions: [number[], number[]][];
  alignments: [weights: number[], numSteps: number, numKeys: number, offset: number, numTags: number][];
  sequences: [number[], number[]][];
  switches: [interventions: Intervention[], changes: [Switch, SwitchState][], sizes: Sizes][];
};

const calls = JSON.parse(readFileSync(0, "utf8")) as Partial<Calls>;
const floats = (values: number[]): Float32Array => Float32Array.from(values);
const aligned = ({ weights, numTargets, numSources }: Alignment) => {
  const links = hardLinks({ weights, numTargets, numSources });
  return { weights: [...weights], numTargets, numSources, links, pharaoh: pharaoh(links) };
};

process.stdout.write(JSON.stringify({
  heads: calls.heads?.map(([weights, places]) => summariseHead(floats(weights), places)),
  means: calls.means?.map(([weights, numHeads]) => [...meanOverHeads(floats(weights), numHeads)]),
  correlations: calls.correlations?.map(([first, second]) => ({ ranks: ranks(first), rho: spearman(first, second) })),
  distributions: calls.distributions?.map(([first, second]) => ({
    log_probs: [...logSoftmax(floats(first))], divergence: divergence(floats(first), floats(second)), best: argmax(first),
  })),
  alignments: calls.alignments?.map(([weights, ...rest]) => aligned(alignmentOf(floats(weights), ...rest))),
  sequences: calls.sequences?.map(([first, second]) => ({ ...differences(first, second), place: firstDifference(first, second) })),
  switches: calls.switches?.map(([interventions, changes, sizes]) => {
    const after = changes.reduce((all, [place, state]) => withState(all, place, state, sizes), interventions);
    return { after, states: allHeads(sizes).map((place) => stateOf(after, place)), presets: PRESETS.map((name) => preset(name, sizes)) };
  }),
}));
