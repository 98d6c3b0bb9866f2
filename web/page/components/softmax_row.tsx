/** One row of attention weights with and without the division by √d_k, as pairs of bars, with the entropy of both. */

import "./softmax_row.css";

import { entropy, softmaxRow } from "../measures/softmax.js";
import { formatNumber, formatPercent, texts, useTexts } from "../text.js";
import type { Store } from "../state.js";
import { Formula } from "./formula.js";
import { shorten } from "./heatmap.js";
import { useWidth } from "./width.js";

const TEXTS = texts({
  en: {
    title: "The softmax of “{token}” with and without ÷√d_k", scaled: "with ÷√d_k, as the model computes it:", unscaled: "without:",
    entropy: "entropy {bits} bits, largest weight {largest}",
    why: "Without the division the scores are √d_k times as far apart, and the softmax comes closer to choosing one position alone, where its gradients are small (section 3.2.1).",
  },
  zh: {
    title: "“{token}”的 softmax：除以与不除以 √d_k", scaled: "除以 √d_k（模型的实际计算）：", unscaled: "不除以：",
    entropy: "熵 {bits} 比特，最大权重 {largest}",
    why: "不做缩放时，分数之间的差距放大 √d_k 倍，softmax 更接近只选一个位置，此时梯度很小（第 3.2.1 节）。",
  },
});

export interface SoftmaxComparisonProps {
  store: Store;
  scores: Float32Array;
  scaledScores: Float32Array;
  mask: Float32Array | undefined;
  token: string;
  tokens: readonly string[];
}

const HEIGHT = 120;

export function SoftmaxComparison({ store, scores, scaledScores, mask, token, tokens }: SoftmaxComparisonProps) {
  const text = useTexts(store, TEXTS);
  const [box, width] = useWidth(600);
  const [scaled, unscaled] = [softmaxRow(scaledScores, mask), softmaxRow(scores, mask)].map(({ terms }) => terms.map(({ weight }) => weight));
  if (scaled === undefined || unscaled === undefined) return null;
  const step = Math.min(48, width / Math.max(1, scaled.length));
  const bar = Math.max(0.5, Math.min(16, step * 0.4));
  const describe = (weights: readonly number[]): string =>
    text.entropy.replace("{bits}", formatNumber(entropy(weights), 3)).replace("{largest}", formatPercent(Math.max(...weights)));
  return (
    <figure class="softmax-row">
      <figcaption><Formula>{text.title.replace("{token}", token)}</Formula></figcaption>
      <ul>
        <li class="scaled" data-entropy={entropy(scaled)}><i /> <Formula>{text.scaled}</Formula> <span class="number">{describe(scaled)}</span></li>
        <li class="unscaled" data-entropy={entropy(unscaled)}><i /> <Formula>{text.unscaled}</Formula> <span class="number">{describe(unscaled)}</span></li>
      </ul>
      <div ref={box}>
        <svg width={step * scaled.length} height={HEIGHT + 52} role="img" aria-label={`${text.title.replace("{token}", token)}. ${text.scaled} ${describe(scaled)}. ${text.unscaled} ${describe(unscaled)}.`}>
          {scaled.map((weight, index) => {
            const x = step * (index + 0.5);
            const other = unscaled[index] ?? 0;
            return (
              <g key={index} data-key={index} data-scaled={weight} data-unscaled={other}>
                <rect class="scaled" x={x - bar} width={bar} y={HEIGHT * (1 - weight)} height={HEIGHT * weight} />
                <rect class="unscaled" x={x} width={bar} y={HEIGHT * (1 - other)} height={HEIGHT * other} />
                {step >= 12 && <text transform={`translate(${x + 4}, ${HEIGHT + 8}) rotate(-60)`} text-anchor="end">{shorten(tokens[index] ?? "", 7)}</text>}
              </g>
            );
          })}
          <line x1={0} x2={step * scaled.length} y1={HEIGHT} y2={HEIGHT} />
        </svg>
      </div>
      <p class="muted small"><Formula>{text.why}</Formula></p>
    </figure>
  );
}
