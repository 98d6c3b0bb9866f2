/** How the chosen number of an attention head was computed, term by term, with the true numbers. */

import "./computation.css";

import { useState } from "preact/hooks";

import type { Computation, Stage } from "../measures/head_computation.js";
import type { Store } from "../state.js";
import { formatNumber, formatPercent, texts, useTexts } from "../text.js";
import { DotTable, MoreTerms } from "./dot_table.js";
import { Formula } from "./formula.js";

const TEXTS = texts({
  en: {
    others: "others",
    differs: "The trace has {value}: a difference of {difference}.", changed: "The model has changes here; see the view What if.", differs_kind: "This kind of attention changes the weights after the softmax.",
    agrees: "This is the number in the trace.", score: "scaled score", exponential: "exp(s − max)", weight: "weight", total: "sum", token: "token",
    without: "without ÷√d_k", divided: "Score divided by √d_k:", unscaled: "The scores are not divided here:",
    masked: "Masked: the position comes later. −∞ is added to the score, so the weight is exactly 0.", visible: "Not masked: 0 is added to the scaled score.",
    copy: "Copied from head {head}, number {feature}. The outputs of all heads stand side by side.", given: "The trace has this number, but not what it was computed from.",
    input: "What the sublayer reads.",
    norm: "Output of the norm: (x − μ) ÷ √(σ² + ε) · γ + β. The view Normalisation shows more.", embedded: "Embedding plus position:", stream: "Residual stream plus the last sublayer's output:",
    rotated: "Rotary positions: the two numbers of a pair are then rotated by {angle} rad.", before: "before the rotation",
  },
  zh: {
    others: "其余",
    differs: "追踪结果中的数值是 {value}，相差 {difference}。", changed: "这里的模型有干预，见“干预实验”视图。", differs_kind: "这种注意力在 softmax 之后还会改变权重。",
    agrees: "与追踪结果中的数值一致。", score: "缩放后的分数", exponential: "exp(s − max)", weight: "权重", total: "总和", token: "词元",
    without: "不除以 √d_k", divided: "分数除以 √d_k：", unscaled: "这里不对分数做缩放：",
    masked: "被掩盖：该位置在后面。分数加上 −∞，权重恰好为 0。", visible: "未被掩盖：缩放后的分数加 0。",
    copy: "取自第 {head} 个头的第 {feature} 个数。所有头的输出依次拼接。", given: "追踪结果中有这个数，但没有计算它所用的数。",
    input: "子层读入的数。",
    norm: "归一化的输出：(x − μ) ÷ √(σ² + ε) · γ + β。详见“归一化”视图。", embedded: "词嵌入加位置编码：", stream: "残差流加最后一个子层的输出：",
    rotated: "旋转位置编码：一对数随后旋转 {angle} 弧度。", before: "旋转之前",
  },
});

export interface ComputationProps {
  store: Store;
  stage: Stage;
  row: number;
  column: number;
  /** Such as Q[8, 17], and the tokens that it belongs to. */
  name: string;
  place: string;
  found: Computation;
  /** The tokens of the terms, where a term is a token. */
  tokens: readonly string[] | undefined;
  showUnscaled: boolean;
  /** Whether the run has interventions. */
  hasChanges: boolean;
}

const FEW = 12;

export function ComputationPanel({ store, stage, row, column, name, place, found, tokens, showUnscaled, hasChanges }: ComputationProps) {
  const text = useTexts(store, TEXTS);
  const computed = "computed" in found ? found.computed : undefined;
  return (
    <section class="computation" aria-live="polite" data-stage={stage} data-row={row} data-column={column} data-value={found.value} data-computed={computed}>
      <h3>{name} = <span class="number">{formatNumber(found.value, 6)}</span></h3>
      <p class="muted">{place}</p>
      {found.kind === "given" && <p>{stage === "input" || stage === "memory" ? text.input : text.given}</p>}
      {found.kind === "norm" && (
        <>
          <p>{text.norm}</p>
          <p class="number">({formatNumber(found.input, 5)} − {inBrackets(found.mean)}) ÷ {formatNumber(found.deviation, 5)} · {inBrackets(found.gain)} + {inBrackets(found.bias)} = {formatNumber(found.computed, 6)}</p>
        </>
      )}
      {found.kind === "sum" && (
        <p>{stage === "memory" ? text.stream : text.embedded} <span class="number">{formatNumber(found.parts[0], 5)} + {inBrackets(found.parts[1])} = {formatNumber(found.computed, 6)}</span></p>
      )}
      {found.kind === "dot" && <DotTable store={store} left={found.left} right={found.right} dot={found.dot} tokens={tokens} />}
      {found.kind === "dot" && found.rotation && (
        <p data-rotation={found.rotation.angle}>
          {text.rotated.replace("{angle}", formatNumber(found.rotation.angle, 5))}{" "}
          <span class="number">
            {found.rotation.isOdd
              ? `${formatNumber(found.rotation.even, 5)} · sin + ${formatNumber(found.rotation.odd, 5)} · cos`
              : `${formatNumber(found.rotation.even, 5)} · cos − ${formatNumber(found.rotation.odd, 5)} · sin`}
            {" = "}{formatNumber(found.computed, 6)}
          </span>
        </p>
      )}
      {found.kind === "scale" && (
        <p>
          <Formula>{found.divisor === 1 ? text.unscaled : text.divided}</Formula> <span class="number">{formatNumber(found.score, 6)} ÷ {formatNumber(found.divisor, 6)} = {formatNumber(found.computed, 6)}</span>
        </p>
      )}
      {found.kind === "mask" && <p>{found.value === 0 ? text.visible : text.masked} <span class="number">{formatNumber(found.scaled, 6)} + {found.value === 0 ? "0" : "(−∞)"}</span></p>}
      {found.kind === "softmax" && <Softmax store={store} found={found} tokens={tokens} showUnscaled={showUnscaled} />}
      {found.kind === "copy" && <p>{text.copy.replace("{head}", String(found.head + 1)).replace("{feature}", String(found.feature))}</p>}
      {computed !== undefined && <Check store={store} value={found.value} computed={computed} reason={hasChanges ? "changed" : found.kind === "softmax" ? "differs_kind" : undefined} />}
    </section>
  );
}

/** A term of a sum: negative numbers in brackets. */
function inBrackets(value: number): string {
  return value < 0 ? `(${formatNumber(value, 5)})` : formatNumber(value, 5);
}

/** Whether the written terms give the number of the trace. */
function Check({ store, value, computed, reason }: { store: Store; value: number; computed: number; reason: "changed" | "differs_kind" | undefined }) {
  const text = useTexts(store, TEXTS);
  const difference = Math.abs(value - computed);
  const agrees = difference <= 1e-4 * Math.max(1, Math.abs(value));
  const stated = text.differs.replace("{value}", formatNumber(value, 7)).replace("{difference}", formatNumber(difference, 2));
  return <p class={agrees ? "muted small" : "problem"} data-agrees={agrees}>{agrees ? text.agrees : `${stated} ${reason ? text[reason] : ""}`}</p>;
}

interface SoftmaxProps {
  store: Store;
  found: Extract<Computation, { kind: "softmax" }>;
  tokens: readonly string[] | undefined;
  showUnscaled: boolean;
}

function Softmax({ store, found, tokens, showUnscaled }: SoftmaxProps) {
  const text = useTexts(store, TEXTS);
  const [all, setAll] = useState(false);
  const { terms, sum } = found.row;
  const order = terms.map((_, index) => index);
  const kept = new Set([...order].sort((a, b) => (terms[b]?.weight ?? 0) - (terms[a]?.weight ?? 0)).slice(0, FEW));
  kept.add(found.column);
  const shown = all ? order : order.filter((index) => kept.has(index));
  const rest = order.filter((index) => !shown.includes(index));
  const restSum = rest.reduce((total, index) => total + (terms[index]?.exponential ?? 0), 0);
  return (
    <>
      <div class={`scroll terms ${all ? "all" : ""}`} tabIndex={0} role="region" aria-label={text.weight}>
        <table class="numbers">
          <thead>
            <tr><th>{text.token}</th><th>{text.score}</th><th>{text.exponential}</th><th>{text.weight}</th>{showUnscaled && <th><Formula>{text.without}</Formula></th>}</tr>
          </thead>
          <tbody>
            {shown.map((index) => {
              const term = terms[index];
              return term && (
                <tr key={index} class={index === found.column ? "chosen" : ""} data-term={index} data-weight={term.weight}>
                  <td>{index} {tokens?.[index] ?? ""}</td><td>{formatNumber(term.score, 4)}</td><td>{formatNumber(term.exponential, 4)}</td>
                  <td>{formatNumber(term.weight, 4)}</td>{showUnscaled && <td>{formatNumber(found.unscaled.terms[index]?.weight ?? 0, 4)}</td>}
                </tr>
              );
            })}
            {rest.length > 0 && <tr class="muted"><td colSpan={2}>{text.others} ({rest.length})</td><td>{formatNumber(restSum, 4)}</td><td>{formatNumber(restSum / sum, 4)}</td>{showUnscaled && <td />}</tr>}
          </tbody>
          <tfoot><tr data-sum={sum}><th colSpan={2}>{text.total}</th><th>{formatNumber(sum, 5)}</th><th>1</th>{showUnscaled && <th>1</th>}</tr></tfoot>
        </table>
      </div>
      <p class="number">
        {formatNumber(terms[found.column]?.exponential ?? 0, 5)} ÷ {formatNumber(sum, 5)} = {formatNumber(found.computed, 6)} ({formatPercent(found.computed)})
      </p>
      {terms.length > FEW + 1 && <MoreTerms store={store} all={all} count={terms.length} onToggle={() => setAll(!all)} />}
    </>
  );
}
