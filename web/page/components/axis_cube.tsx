/** The batch as a box of sentences × tokens × features; the numbers that one mean is computed over are filled. */

import "./axis_cube.css";

import { texts, useTexts } from "../text.js";
import type { Store } from "../state.js";

const TEXTS = texts({
  en: { sentences: "sentences", tokens: "tokens", features: "features", layer: "LayerNorm: one token, all features", batch: "BatchNorm: one feature, all tokens of all sentences" },
  zh: { sentences: "句子", tokens: "词元", features: "特征", layer: "LayerNorm：一个词元的全部特征", batch: "BatchNorm：一个特征，取全部句子的全部词元" },
});

/** An oblique drawing: features to the right, tokens upwards, sentences to the back. */
const [WIDTH, HEIGHT, DEPTH_X, DEPTH_Y] = [120, 84, 44, 30];
const [LEFT, BOTTOM] = [24, 132];

type Point = readonly [feature: number, token: number, sentence: number];

function project([feature, token, sentence]: Point): string {
  return `${LEFT + feature * WIDTH + sentence * DEPTH_X},${BOTTOM - token * HEIGHT - sentence * DEPTH_Y}`;
}

/** The three visible faces of a box between two corners. */
function faces([f0, t0, s0]: Point, [f1, t1, s1]: Point): string[] {
  const corners: Point[][] = [
    [[f0, t0, s0], [f1, t0, s0], [f1, t1, s0], [f0, t1, s0]],
    [[f0, t1, s0], [f1, t1, s0], [f1, t1, s1], [f0, t1, s1]],
    [[f1, t0, s0], [f1, t0, s1], [f1, t1, s1], [f1, t1, s0]],
  ];
  return corners.map((face) => face.map(project).join(" "));
}

export function AxisCube({ store, norm }: { store: Store; norm: "layer" | "batch" }) {
  const text = useTexts(store, TEXTS);
  const chosen = norm === "layer" ? faces([0, 0.5, 0], [1, 0.625, 0.25]) : faces([0.375, 0, 0], [0.5, 1, 1]);
  return (
    <figure class="axis-cube" data-norm={norm}>
      <svg width={208} height={160} role="img" aria-label={text[norm]}>
        {faces([0, 0, 0], [1, 1, 1]).map((points) => <polygon key={points} class="box" points={points} />)}
        {chosen.map((points) => <polygon key={points} class={`chosen ${norm}`} points={points} />)}
        <text x={LEFT + WIDTH / 2} y={BOTTOM + 16} text-anchor="middle">{text.features}</text>
        <text transform={`translate(${LEFT - 8}, ${BOTTOM - HEIGHT / 2}) rotate(-90)`} text-anchor="middle">{text.tokens}</text>
        <text x={LEFT + WIDTH + DEPTH_X / 2 + 6} y={BOTTOM - DEPTH_Y / 2 + 12}>{text.sentences}</text>
      </svg>
      <figcaption>{text[norm]}</figcaption>
    </figure>
  );
}
