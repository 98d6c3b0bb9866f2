/** One attention head worked out: x → Q, K, V → QKᵀ → ÷√d_k → mask → softmax → weighted sum → concatenation → W_O. */

import "./head.css";

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import { chosenAttention } from "../attention_axes.js";
import { attentionName, sideOf, stackOf, tokensOf } from "../chosen.js";
import { RowNames } from "../components/choosers.js";
import { ComputationPanel } from "../components/computation.js";
import { Formula } from "../components/formula.js";
import { HeadChooser } from "../components/head_chooser.js";
import { SoftmaxComparison } from "../components/softmax_row.js";
import { StageMatrix, type StageProps } from "../components/stage.js";
import { useWidth } from "../components/width.js";
import { computation, headTensors, operands, readHead, rowOf, STAGES, type Head, type Matrix, type OriginNames, type Stage } from "../measures/head_computation.js";
import { currentStep, type Run, type Session, usePresentTensors, useSession } from "../session.js";
import type { AttentionKind, State } from "../state.js";
import { formatNumber, TERMS, texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: {
    intro: "One attention head with the numbers of this sentence, in the order of Figure 2 of the paper (section 3.2). Select a cell to see how it is computed; the arrow keys move to the next one.",
    unscaled: "Leave out ÷√d_k", project: "Project", compare: "Compare", weigh: "Weigh", sum: "Sum up", join: "Join the heads",
    project_self: "Each token gives a query, a key and a value.", project_cross: "Each target token gives a query; each token of the encoder's memory gives a key and a value.",
    rotated: "Rotary positions: Q and K are shown after their rotation; V is not rotated.", compare_text: "Each query with each key.",
    additive: "This model scores by v·tanh(q + k). The trace has the scores but not v, so they are not written out.",
    weigh_text: "Each row of weights sums to 1.", unnormalised: "This kind of attention changes the weights after the softmax, so that a row need not sum to 1.", sum_text: "Each token gets the sum of the values, weighted by its row of A.",
    join_text: "The outputs of all {heads} heads stand side by side, and W_O projects them. This head has columns {first} to {last}; the buttons choose another.",
    nothing_masked: "Nothing is masked here: every position is visible.", later: "Later positions are masked.",
    only: "This model has only the weights of this attention.", none: "This model has no such attention in its trace.", input: "Input", memory: "Memory",
    missing_weights: "The trace of this model has no weight matrices: the products of Q, K, V and of the output are not written out.",
  },
  zh: {
    intro: "一个注意力头对这句话的全部计算，顺序与论文图 2 相同（第 3.2 节）。点选任一格，就会写出它的计算过程；方向键可逐格移动。",
    unscaled: "不除以 √d_k", project: "投影", compare: "比较", weigh: "加权", sum: "求和", join: "拼接各头",
    project_self: "每个词元给出一个查询、一个键和一个值。", project_cross: "每个译文词元给出查询；编码器输出（memory）的每个词元给出键和值。",
    rotated: "旋转位置编码：图中的 Q 和 K 是旋转之后的；V 不旋转。", compare_text: "每个查询与每个键做内积。",
    additive: "该模型用 v·tanh(q + k) 打分。追踪结果中有分数，没有向量 v，因此不写出计算过程。",
    weigh_text: "每一行权重之和为 1。", unnormalised: "这种注意力在 softmax 之后还会改变权重，因此一行之和不一定为 1。", sum_text: "每个词元按 A 中对应一行的权重对所有值加权求和。",
    join_text: "{heads} 个头的输出并排拼接，再由 W_O 投影。这个头占第 {first} 到 {last} 列；点击数字可切换到其他头。",
    nothing_masked: "这里没有掩码：所有位置都可见。", later: "后面的位置被掩盖。",
    only: "该模型的追踪结果只有这个注意力的权重。", none: "该模型的追踪结果中没有这种注意力。", input: "输入", memory: "memory（编码器输出）",
    missing_weights: "该模型的追踪结果不含权重矩阵，因此 Q、K、V 和输出不写出逐项乘积。",
  },
});

const SYMBOLS: Record<Stage, string> = {
  input: "x", memory: "m", query: "Q", key: "K", value: "V", scores: "S", scaled_scores: "S′", mask: "M", weights: "A", head_outputs: "Z",
  concatenation: "C", output: "Y",
};

interface Cell {
  stage: Stage;
  row: number;
  column: number;
}

/** The cell of the address, or the largest weight of the row that the state means. */
function chosenCell(head: Head, state: State, row: number): Cell {
  const [stage, ...place] = (state.options["head.cell"] ?? "").split("-");
  const found = STAGES.find((one) => one === stage && head.stages[one] !== undefined);
  const matrix = found && head.stages[found];
  const [y = NaN, x = NaN] = place.map(Number);
  if (found && matrix && y >= 0 && x >= 0 && y < matrix.numRows && x < matrix.numColumns) return { stage: found, row: y, column: x };
  const weights = head.stages.weights;
  if (weights === undefined) return { stage: "weights", row: 0, column: 0 };
  const query = Math.min(state.query < 0 ? row : state.query, weights.numRows - 1);
  const values = rowOf(weights, query);
  const largest = values.reduce((best, value, index) => (value > (values[best] ?? 0) ? index : best), 0);
  return { stage: "weights", row: query, column: state.key < 0 ? largest : Math.min(state.key, weights.numColumns - 1) };
}

/** The tensors' names and the facts of the model for a head. */
function headOptions(run: Run, kind: AttentionKind, layer: number, head: number) {
  const { norm_placement, positions, attention_scoring, final_norm, num_encoder_layers } = run.model.manifest.model;
  const name = attentionName(kind, layer);
  const stack = stackOf(kind);
  const side = sideOf(stack);
  const withPositions = !run.interventions.some((one) => one.kind === "no_positions" && one.stack === stack) && positions !== "rotary";
  const normBefore = kind === "cross" ? `${stack}.layers.${layer}.self_attention_norm` : `${stack}.layers.${layer - 1}.feed_forward_norm`;
  const lastOfEncoder = `encoder.layers.${num_encoder_layers - 1}.feed_forward`;
  const inputOrigin: OriginNames | undefined =
    norm_placement === "pre" ? { norm: `${name}_norm` } : kind === "cross" || layer > 0 ? { norm: normBefore } : withPositions ? { parts: [`${side}_embedding`, `${side}_positions`] } : undefined;
  const memoryOrigin: OriginNames = final_norm
    ? { norm: "encoder.norm" } : norm_placement === "post" ? { norm: `${lastOfEncoder}_norm` } : { parts: [`${lastOfEncoder}.residual_before`, `${lastOfEncoder}.output`] };
  const sublayer = kind === "cross" ? "cross_attention" : "self_attention";
  const applies = (one: { kind: string; stack: string; sublayer?: string; layer?: number }, wanted: string): boolean =>
    one.kind === wanted && one.stack === stack && (one.sublayer ?? sublayer) === sublayer && (one.layer ?? layer) === layer;
  return {
    name,
    head,
    input: norm_placement === "pre" ? `${name}_norm.output` : `${name}.residual_before`,
    ...(inputOrigin ? { inputOrigin } : {}),
    memory: kind === "cross" ? "memory" : undefined,
    memoryOrigin,
    rotary: positions === "rotary" && kind !== "cross" && !run.interventions.some((one) => one.kind === "no_positions" && one.stack === stack),
    additive: attention_scoring === "additive",
    isScaled: attention_scoring === "scaled_dot" && !run.interventions.some((one) => applies(one, "unscaled")),
  };
}

export function HeadView({ session }: { session: Session }) {
  useSession(session);
  const { store, shown: run } = session;
  const text = useTexts(store, TEXTS);
  return (
    <div class="head-view">
      <p>{text.intro}</p>
      {run && <HeadOfRun session={session} run={run} />}
    </div>
  );
}

function HeadOfRun({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const { state } = store;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const { place: { kind }, layer, head } = chosenAttention(run.model, state);
  const options = headOptions(run, kind, layer, head);
  const tensors = usePresentTensors(session, run, headTensors(options));
  const numbers = useMemo(() => tensors && readHead(tensors, options), [run, options.name, head, tensors?.size]);
  const unscaled = state.options["head.unscaled"] === "1";
  return (
    <>
      <div class="controls">
        <HeadChooser session={session} withMean={false} />
        {numbers?.stages.scores && numbers.divisor !== 1 && <button type="button" aria-pressed={unscaled} data-action="unscaled" onClick={() => store.setOption("head.unscaled", unscaled ? undefined : "1")}><Formula>{text.unscaled}</Formula></button>}
      </div>
      {tensors === undefined && <p class="computing muted" role="status">{terms.computing}</p>}
      {numbers && <Flow session={session} run={run} head={numbers} kind={kind} unscaled={unscaled && numbers.divisor !== 1} />}
    </>
  );
}

function Flow({ session, run, head, kind, unscaled }: { session: Session; run: Run; head: Head; kind: AttentionKind; unscaled: boolean }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const [box, width] = useWidth(640);
  const { stages } = head;
  if (stages.weights === undefined) return <p class="muted">{text.none}</p>;
  const querySide = sideOf(stackOf(kind));
  const keySide = kind === "decoder" ? "target" : "source";
  const [queries, keys] = [tokensOf(run, querySide), tokensOf(run, keySide)];
  const cell = chosenCell(head, store.state, querySide === "target" ? currentStep(session) : 0);
  const lit = operands(head, cell.stage, cell.row, cell.column);
  const select = (stage: Stage) => (row: number, column: number): void => {
    const { "head.cell": _, ...options } = store.state.options;
    const isPair = stage === "scores" || stage === "scaled_scores" || stage === "mask" || stage === "weights";
    store.update({ options: { ...options, "head.cell": `${stage}-${row}-${column}` }, ...(isPair ? { query: row, key: column } : {}) });
  };
  const rowsOf = (stage: Stage): { side: "source" | "target"; tokens: string[] } =>
    stage === "key" || stage === "value" || stage === "memory" ? { side: keySide, tokens: keys } : { side: querySide, tokens: queries };
  const labelWidth = 88;
  const room = Math.max(160, width);
  const hasMask = stages.mask?.values.some((value) => value !== 0) ?? false;
  const small = room < 480 ? Math.min(240, room - labelWidth) : Math.min(208, Math.floor((room - labelWidth - 168) / (hasMask ? 3 : 2)));
  const stage = (name: Stage, formula: string, given: Partial<StageProps> = {}) => {
    const matrix = stages[name];
    if (matrix === undefined) return null;
    const { side, tokens } = rowsOf(name);
    return (
      <StageMatrix
        store={store} name={name} symbol={SYMBOLS[name]} formula={formula} title={`${SYMBOLS[name]} = ${formula}`} matrix={matrix} width={room - labelWidth} height={heightFor(matrix.numRows)}
        rowSide={side} rowLabels={tokens} onSelect={select(name)} operand={lit[name]} selected={cell.stage === name ? cell : null} {...given}
      />
    );
  };
  const pair = (name: Stage, formula: string, given: Partial<StageProps> = {}) =>
    stage(name, formula, { width: small, height: small, isSquare: true, columnSide: keySide, rowLabels: undefined, isMasked, ...given });
  const isMasked = (row: number, column: number): boolean => stages.mask?.values[row * (stages.weights?.numColumns ?? 0) + column] === -Infinity;
  const third = room < 480 ? room - labelWidth : Math.floor((room - (kind === "cross" ? 2 : 1) * labelWidth - 24) / 3);
  const tokenOfTerm = cell.stage === "weights" || cell.stage === "head_outputs" ? keys : undefined;
  return (
    <div class="beside">
      <div class="flow" ref={box}>
        {stages.query && (
          <section class="part">
            <h3>1 {text.project} <span class="formula"><Formula>{kind === "cross" ? "Q = x W_Q, K = m W_K, V = m W_V" : "Q = x W_Q, K = x W_K, V = x W_V"}</Formula></span></h3>
            <p class="small">{kind === "cross" ? text.project_cross : text.project_self} {head.rotary && text.rotated} {head.parameters.query === undefined && text.missing_weights}</p>
            <RowNames session={session} stack={stackOf(kind)} />
            <div class="stages">
              {stage("input", text.input)}
              {stage("memory", text.memory)}
            </div>
            <div class="stages aligned">
              {stage("query", "x W_Q", { width: third })}
              {stage("key", kind === "cross" ? "m W_K" : "x W_K", { width: third, rowLabels: kind === "cross" || room < 480 ? keys : undefined })}
              {stage("value", kind === "cross" ? "m W_V" : "x W_V", { width: third, rowLabels: room < 480 ? keys : undefined })}
            </div>
          </section>
        )}
        {stages.scores && (
          <section class="part">
            <h3>2 {text.compare} <span class="formula"><Formula>{head.additive ? "v·tanh(q + k)" : "S = Q Kᵀ"}</Formula></span></h3>
            <p class="small">{head.additive ? text.additive : text.compare_text} {hasMask ? text.later : text.nothing_masked}</p>
            <div class="stages">
              {pair("scores", head.additive ? "v·tanh(q + k)" : "Q Kᵀ", { rowLabels: queries })}
              <Operation>÷ {formatNumber(head.divisor, 4)}</Operation>
              {pair("scaled_scores", head.divisor === 1 ? "S" : "S ÷ √d_k")}
              {hasMask && <Operation>+ M</Operation>}
              {hasMask && pair("mask", "0, −∞")}
            </div>
          </section>
        )}
        <section class="part">
          <h3>3 {text.weigh} <span class="formula"><Formula>A = softmax(S′ + M)</Formula></span></h3>
          <p class="small">{rowsSumToOne(stages.weights) ? text.weigh_text : text.unnormalised} {!stages.scores && text.only}</p>
          <div class="stages">
            {pair("weights", "softmax(S′ + M)", {
              scale: "sequential", width: Math.min(320, room - labelWidth), height: 320, rowLabels: queries, columnLabels: keys,
            })}
          </div>
          {unscaled && stages.scores && stages.scaled_scores && (
            <SoftmaxComparison
              store={store} scores={rowOf(stages.scores, rowOfQuery(cell))} scaledScores={rowOf(stages.scaled_scores, rowOfQuery(cell))}
              mask={stages.mask && rowOf(stages.mask, rowOfQuery(cell))} token={queries[rowOfQuery(cell)] ?? ""} tokens={keys}
            />
          )}
        </section>
        {stages.head_outputs && (
          <section class="part">
            <h3>4 {text.sum} <span class="formula"><Formula>Z = A V</Formula></span></h3>
            <p class="small">{text.sum_text}</p>
            <div class="stages">{stage("head_outputs", "A V")}</div>
          </section>
        )}
        {stages.concatenation && (
          <section class="part">
            <h3>5 {text.join} <span class="formula"><Formula>C = Concat(Z₁, …, Z_h), Y = C W_O</Formula></span></h3>
            <p class="small">
              <Formula>
                {text.join_text.replace("{heads}", String(stages.concatenation.numColumns / head.headDim))
                  .replace("{first}", String(head.head * head.headDim)).replace("{last}", String((head.head + 1) * head.headDim - 1))}
              </Formula>
            </p>
            <div class="stages">
              {stage("concatenation", "Concat(Z₁, …, Z_h)", {
                bands: {
                  names: Array.from({ length: stages.concatenation.numColumns / head.headDim }, (_, index) => String(index + 1)), chosen: head.head, title: terms.head,
                  onSelect: (chosen) => store.update({ head: chosen }),
                },
              })}
            </div>
            <div class="stages">{stage("output", "C W_O")}</div>
          </section>
        )}
      </div>
      <ComputationPanel
        store={store} stage={cell.stage} row={cell.row} column={cell.column} name={`${SYMBOLS[cell.stage]}[${cell.row}, ${cell.column}]`}
        place={cellTokens(cell, rowsOf(cell.stage).tokens, keys)}
        found={computation(head, cell.stage, cell.row, cell.column)} tokens={tokenOfTerm} showUnscaled={unscaled} hasChanges={run.interventions.length > 0}
      />
    </div>
  );
}

function Operation({ children }: { children: ComponentChildren }) {
  return <span class="operation number">{children}</span>;
}

/** The height of a matrix of tokens: 12 pixels a token, less for many. */
function heightFor(numRows: number): number {
  return Math.min(12 * numRows, Math.max(288, Math.min(512, numRows)));
}

function rowsSumToOne(weights: Matrix): boolean {
  return Array.from({ length: weights.numRows }, (_, row) => rowOf(weights, row).reduce((sum, one) => sum + one, 0)).every((sum) => Math.abs(sum - 1) < 1e-3);
}

/** The query of a cell; of a key or value, the first. */
function rowOfQuery({ stage, row }: Cell): number {
  return stage === "key" || stage === "value" || stage === "memory" ? 0 : row;
}

/** The tokens that a cell's row, and in a matrix of pairs its column, stand for. */
function cellTokens({ stage, row, column }: Cell, rows: readonly string[], keys: readonly string[]): string {
  const isPair = stage === "scores" || stage === "scaled_scores" || stage === "mask" || stage === "weights";
  return `“${rows[row] ?? row}”${isPair ? ` → “${keys[column] ?? column}”` : ""}`;
}
