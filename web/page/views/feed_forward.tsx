/** The feed-forward sublayer (section 3.3): which of its units fire for a token, and how many stay at zero. */

import "./feed_forward.css";

import { useMemo } from "preact/hooks";

import { chosenLayer, chosenToken, numLayers, sideOf, tokensOf, type Stack } from "../chosen.js";
import { Bars } from "../components/bars.js";
import { LayerChoice, RowNames, StackChoice, TokenChoice } from "../components/choosers.js";
import { DotTable } from "../components/dot_table.js";
import { largest } from "../components/heatmap.js";
import { StageMatrix } from "../components/stage.js";
import { useWidth } from "../components/width.js";
import { asColumns } from "../measures/stream.js";
import { dotProduct } from "../measures/terms.js";
import { histogram, isSilent, NEAR_ZERO, silentShares, topUnits } from "../measures/units.js";
import { type Run, type Session, usePresentTensors, useSession } from "../session.js";
import { formatNumber, formatPercent, TERMS, texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: {
    intro: "The feed-forward sublayer treats each token alone: {inner} units read its vector, and their activations are added up to {outer} numbers again (section 3.3).",
    relu: "FFN(x) = max(0, x W₁ + b₁) W₂ + b₂: with ReLU, a unit whose sum is negative is exactly 0.",
    gelu: "FFN(x) = GELU(x W₁ + b₁) W₂ + b₂: with GELU, few units are exactly 0; here |activation| ≤ {near} counts as near zero.",
    swiglu: "FFN(x) = (SiLU(x W_g) · x W₁) W₂: with SwiGLU, few units are exactly 0; here |activation| ≤ {near} counts as near zero.",
    none: "The trace of this model has no feed-forward sublayer.", silent_relu: "zero", silent: "near zero",
    units: "The {count} units of layer {layer} for “{token}”", count: "{firing} of {count} units fire, {silent} ({share}) are {word}.",
    grid: "Each cell is a unit, row by row, after the activation. Select one to see its numbers.", unit: "unit", pre: "before the activation", reading: "Unit {unit}: {pre} before the activation, {post} after it", reading_gate: "Unit {unit}: {pre} before the activation, gate {gate}, {post} after it", post: "after the activation",
    top: "The units that fire most", most: "fires most for", one: "Unit {unit} on every token", sum: "How unit {unit} gets its sum before the activation", distribution: "Before the activation", histogram: "How many units have which value",
    nth: "Layer {layer}", share: "“{token}”, layer {layer}: {share}", sparsity: "Share of units that fire, by layer and token", sparsity_text: "Rows are tokens, columns are layers; the other units are {word}. Select a cell to see its layer and token above.",
  },
  zh: {
    intro: "前馈子层单独处理每个词元：{inner} 个单元读入它的向量，再由它们的激活值加权求和得到 {outer} 个数（第 3.3 节）。",
    relu: "FFN(x) = max(0, x W₁ + b₁) W₂ + b₂：使用 ReLU，加权和为负的单元恰好为 0。",
    gelu: "FFN(x) = GELU(x W₁ + b₁) W₂ + b₂：使用 GELU，很少有单元恰好为 0；这里把 |激活值| ≤ {near} 算作接近零。",
    swiglu: "FFN(x) = (SiLU(x W_g) · x W₁) W₂：使用 SwiGLU，很少有单元恰好为 0；这里把 |激活值| ≤ {near} 算作接近零。",
    none: "该模型的追踪结果中没有前馈子层。", silent_relu: "为零", silent: "接近零",
    units: "“{token}”在第 {layer} 层的 {count} 个单元", count: "{count} 个单元中 {firing} 个被激活，{silent} 个（{share}）{word}。",
    grid: "每一格是一个单元激活之后的值，逐行排列。点选一格查看它的数值。", unit: "单元", pre: "激活之前", reading: "单元 {unit}：激活之前 {pre}，激活之后 {post}", reading_gate: "单元 {unit}：激活之前 {pre}，门控 {gate}，激活之后 {post}", post: "激活之后",
    top: "激活最强的单元", most: "激活最强的词元", one: "单元 {unit} 在各个词元上", sum: "单元 {unit} 激活之前的和是怎样算出的", distribution: "激活之前的值", histogram: "各取值区间的单元个数",
    nth: "第 {layer} 层", share: "“{token}”，第 {layer} 层：{share}", sparsity: "各层、各词元中被激活单元的比例", sparsity_text: "行是词元，列是层；其余单元{word}。点选一格，上方显示该层和该词元。",
  },
});

const NUM_TOP = 12;

export function FeedForwardView({ session }: { session: Session }) {
  useSession(session);
  const { store, shown: run } = session;
  const text = useTexts(store, TEXTS);
  if (run === null) return null;
  const { architecture, activation, d_ff, d_model } = run.model.manifest.model;
  if (architecture !== "transformer") return <div class="feed-forward-view"><p>{text.none}</p></div>;
  const stack: Stack = store.state.options["feed_forward.stack"] === "decoder" ? "decoder" : "encoder";
  return (
    <div class="feed-forward-view">
      <p>{text.intro.replace("{inner}", String(d_ff)).replace("{outer}", String(d_model))} {text[activation].replace("{near}", String(NEAR_ZERO))}</p>
      <div class="controls">
        <StackChoice session={session} stack={stack} onChange={(chosen) => store.setOption("feed_forward.stack", chosen === "decoder" ? chosen : undefined)} />
        <LayerChoice session={session} run={run} stack={stack} />
        <TokenChoice session={session} run={run} stack={stack} />
      </div>
      <RowNames session={session} stack={stack} />
      <Units session={session} run={run} stack={stack} />
      <Sparsity session={session} run={run} stack={stack} />
    </div>
  );
}

function Units({ session, run, stack }: { session: Session; run: Run; stack: Stack }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const [box, width] = useWidth(640);
  const { activation, d_ff, d_model, norm_placement } = run.model.manifest.model;
  const layer = chosenLayer(run, store.state, stack);
  const name = `${stack}.layers.${layer}.feed_forward`;
  const input = norm_placement === "pre" ? `${name}_norm.output` : `${name}.residual_before`;
  const parts = ["pre_activation", "post_activation", "input_weight", "input_bias", ...(activation === "swiglu" ? ["gate"] : [])];
  const tensors = usePresentTensors(session, run, [input, ...parts.map((part) => `${name}.${part}`)]);
  const side = sideOf(stack);
  const tokens = tokensOf(run, side);
  const token = chosenToken(run, store.state, stack);
  const [pre, post, gate, weight, bias] = ["pre_activation", "post_activation", "gate", "input_weight", "input_bias"].map((part) => tensors?.get(`${name}.${part}`)?.values);
  const x = tensors?.get(input)?.values;
  if (pre === undefined || post === undefined) return <p class="computing muted" role="status" ref={box}>{terms.computing}</p>;
  const row = (values: Float32Array): Float32Array => values.subarray(token * d_ff, (token + 1) * d_ff);
  const values = row(post);
  const silent = values.filter((value) => isSilent(value, activation)).length;
  const top = topUnits(values, NUM_TOP);
  const unit = Math.max(0, Math.min(d_ff - 1, Number(store.state.options["feed_forward.unit"] ?? top[0] ?? 0) || 0));
  const ofUnit = tokens.map((_, index) => post[index * d_ff + unit] ?? 0);
  const firesMost = (one: number): number => tokens.reduce((best, _, index) => (Math.abs(post[index * d_ff + one] ?? 0) > Math.abs(post[best * d_ff + one] ?? 0) ? index : best), 0);
  const numColumns = gridColumns(d_ff, width);
  const numRows = Math.ceil(d_ff / numColumns);
  const grid = new Float32Array(numRows * numColumns);
  grid.set(values);
  const choose = (chosen: number): void => store.setOption("feed_forward.unit", String(Math.min(chosen, d_ff - 1)));
  const dot = weight && x && dotProduct(x.subarray(token * d_model, (token + 1) * d_model), weight.subarray(unit * d_model, (unit + 1) * d_model), { bias: bias?.[unit] ?? 0 });
  const counts = text.count.replace("{firing}", String(d_ff - silent)).replace("{count}", String(d_ff)).replace("{silent}", String(silent))
    .replace("{share}", formatPercent(silent / d_ff)).replace("{word}", activation === "relu" ? text.silent_relu : text.silent);
  return (
    <>
      <section class="part" ref={box} data-token={token} data-silent={silent} data-units={d_ff}>
        <h3>{text.units.replace("{count}", String(d_ff)).replace("{layer}", String(layer + 1)).replace("{token}", tokens[token] ?? "")}</h3>
        <p>{counts}</p>
        <p class="small">{text.grid}</p>
        <div class="scroll">
          <StageMatrix
            store={store} name="units" symbol={text.post} title={text.grid} matrix={{ values: grid, numRows, numColumns }} width={Math.min(width, 900)} height={480} isSquare maxCell={16}
            isMasked={(y, x) => y * numColumns + x >= d_ff} selected={{ row: Math.floor(unit / numColumns), column: unit % numColumns }} onSelect={(y, x) => choose(y * numColumns + x)}
          />
        </div>
        <p class="number" data-unit={unit} data-pre={row(pre)[unit]} data-post={values[unit]}>
          {(gate ? text.reading_gate : text.reading).replace("{unit}", String(unit)).replace("{pre}", formatNumber(row(pre)[unit] ?? NaN, 5))
            .replace("{gate}", formatNumber(gate ? (row(gate)[unit] ?? NaN) : NaN, 5)).replace("{post}", formatNumber(values[unit] ?? NaN, 5))}
        </p>
        {dot && (
          <details class="sum" data-sum={dot.sum}>
            <summary class="small">{text.sum.replace("{unit}", String(unit))}</summary>
            <DotTable store={store} dot={dot} left="x" right="w" />
          </details>
        )}
      </section>
      <div class="beside">
        <section class="part">
          <h3>{text.top}</h3>
          <div class="scroll" tabIndex={0} role="region" aria-label={text.top}>
            <table class="numbers">
              <thead><tr><th>{text.unit}</th><th>{text.pre}</th><th>{text.post}</th><th>{text.most}</th></tr></thead>
              <tbody>
                {top.map((one) => (
                  <tr key={one} class={one === unit ? "chosen" : ""} data-unit={one} data-value={values[one]}>
                    <td><button type="button" aria-pressed={one === unit} onClick={() => choose(one)}>{one}</button></td>
                    <td>{formatNumber(row(pre)[one] ?? NaN, 4)}</td><td>{formatNumber(values[one] ?? NaN, 4)}</td><td class="token-name">{tokens[firesMost(one)]}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
        <section class="part">
          <h3>{text.one.replace("{unit}", String(unit))}</h3>
          <UnitOnTokens tokens={tokens} values={ofUnit} token={token} onChoose={(index) => store.update(stack === "encoder" ? { key: index } : { step: index })} />
        </section>
        <section class="part">
          <h3>{text.distribution}</h3>
          <Bars title={text.histogram} histogram={histogram(row(pre), 40)} />
        </section>
      </div>
    </>
  );
}

interface UnitOnTokensProps {
  tokens: readonly string[];
  values: readonly number[];
  token: number;
  onChoose: (index: number) => void;
}

/** The activation of one unit on each token; of many tokens, those with the largest. */
function UnitOnTokens({ tokens, values, token, onChoose }: UnitOnTokensProps) {
  const kept = new Set([...values.keys()].sort((a, b) => Math.abs(values[b] ?? 0) - Math.abs(values[a] ?? 0)).slice(0, 24)).add(token);
  return (
    <div class="scroll">
      <table class="numbers">
        <tbody>
          {tokens.map((name, index) => kept.has(index) && (
            <tr key={index} class={index === token ? "chosen" : ""} data-token={index} data-value={values[index]}>
              <td class="token-name"><button type="button" aria-label={`${index} ${name}`} onClick={() => onChoose(index)}>{name}</button></td><td>{formatNumber(values[index] ?? NaN, 4)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Sparsity({ session, run, stack }: { session: Session; run: Run; stack: Stack }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const [box, width] = useWidth(640);
  const { activation, d_ff } = run.model.manifest.model;
  const names = Array.from({ length: numLayers(run, stack) }, (_, layer) => `${stack}.layers.${layer}.feed_forward.post_activation`);
  const tensors = usePresentTensors(session, run, names);
  const shares = useMemo(
    () => tensors && asColumns(names.map((name) => silentShares(tensors.get(name)?.values ?? new Float32Array(), d_ff, activation).map((share) => 1 - share))),
    [run, stack, tensors !== undefined],
  );
  if (shares === undefined) return <p class="computing muted" role="status" ref={box}>{terms.computing}</p>;
  const side = sideOf(stack);
  const tokens = tokensOf(run, side);
  const [token, layer] = [chosenToken(run, store.state, stack), chosenLayer(run, store.state, stack)];
  return (
    <section class="part" ref={box}>
      <h3>{text.sparsity}</h3>
      <p class="small">{text.sparsity_text.replace("{word}", activation === "relu" ? text.silent_relu : text.silent)}</p>
      <div class="scroll">
        <StageMatrix
          store={store} name="sparsity" symbol={text.share.replace("{token}", tokens[token] ?? "").replace("{layer}", String(layer + 1)).replace("{share}", formatPercent(shares[token * names.length + layer] ?? NaN))} title={text.sparsity}
          matrix={{ values: shares, numRows: tokens.length, numColumns: names.length }} scale="sequential" maximum={largest(shares)} width={Math.max(160, Math.min(width, 900) - 88)} height={Math.min(16 * tokens.length, Math.max(384, Math.min(512, tokens.length)))}
          rowSide={side} rowLabels={tokens} columnLabels={names.map((_, index) => text.nth.replace("{layer}", String(index + 1)))} maxCell={32} selected={{ row: token, column: layer }}
          onSelect={(row, column) => store.update({ layer: column, ...(stack === "encoder" ? { key: row } : { step: row }) })}
        />
      </div>
    </section>
  );
}

/** Columns of a grid of units: a divisor of their number if one fits, so that the last row is full; cells have 8 pixels or more. */
function gridColumns(count: number, width: number): number {
  const most = Math.max(1, Math.min(count, Math.floor(width / 8), Math.ceil(Math.sqrt(2 * count))));
  for (let columns = most; columns > most / 2; --columns) if (count % columns === 0) return columns;
  return most;
}
