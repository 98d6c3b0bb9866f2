/** The sentence's own activations normalised by LayerNorm and, in a batch with three other sentences and padding, by BatchNorm. */

import "./norms.css";

import { useMemo } from "preact/hooks";

import type { Tensor } from "../../engine/src/index.js";
import { chosenLayer, chosenToken, sideOf, sublayersOf, tokensOf, type Stack } from "../chosen.js";
import { AxisCube } from "../components/axis_cube.js";
import { canTraceOthers, useBatch } from "../components/batch_sentences.js";
import { Choice, LayerChoice, TokenChoice } from "../components/choosers.js";
import { StageMatrix } from "../components/stage.js";
import { useWidth } from "../components/width.js";
import { featureStatistics, padBatch, standardise, tokenStatistics, type PaddedBatch, type Statistics } from "../measures/norm_statistics.js";
import { type Run, type Session, usePresentTensors, useSession } from "../session.js";
import { formatNumber, formatPercent, TERMS, texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: {
    intro: "Each sublayer is followed, or preceded, by a norm (section 3.1). LayerNorm takes the mean and the deviation of one token over its features; BatchNorm takes those of one feature over all tokens of a batch. Both are computed here from this sentence's own activations.",
    norm: "Norm of", place: "{stack}: {part}", final: "end of the {stack}", feature: "Feature", axis: "Which numbers a mean is taken over", one: "One number, by LayerNorm",
    one_rms: "One number, by RMSNorm", input: "x, the norm's input", mean: "mean μ of the token", deviation: "deviation √(σ² + ε) of the token", standardised: "x̂ = (x − μ) ÷ √(σ² + ε)",
    gain: "gain γ of the feature, trained", bias: "bias β of the feature, trained", output: "output = γ x̂ + β", rms_mean: "mean: not subtracted", rms_deviation: "√(mean of x² + ε) of the token", rms_standardised: "x̂ = x ÷ √(mean of x² + ε)", rms_output: "output = γ x̂",
    engine: "model", computed: "computed here", batch: "The same sentence in a batch", batch_text: "Three other sentences, traced by the same model, are put beside it. Shorter sentences are filled with padding, {padding} of {places} positions. Here padding holds zeros.",
    batch_model: "This model's own norm is BatchNorm. It uses the means of its training, so that one sentence does not depend on others; during training it used those of the batch, as below.",
    raw: "x, before the norm", by_layer: "x̂ by LayerNorm", by_rms: "x̂ by RMSNorm", by_batch: "x̂ by BatchNorm, real tokens only", by_padded: "x̂ by BatchNorm, padding counted",
    settings: "What the chosen number becomes", norm_name: "norm", setting: "computed over", count: "numbers", mean_name: "mean", deviation_name: "deviation", result: "x̂",
    over_token: "the features of this token", over_sentence: "this feature, this sentence alone", over_batch: "this feature, all sentences", over_padding: "this feature, all sentences and padding",
    conclusion: "LayerNorm gives the same result in every batch. BatchNorm changes by up to {batch} with the other sentences, and by up to {padding} if padding is counted: the zeros pull the means towards 0, and the deviations become {share} of what they were on average.",
    conclusion_none: "LayerNorm gives the same result in every batch. BatchNorm changes by up to {batch} with the other sentences; this batch has no padding.",
    tracing: "Tracing three other sentences…", recorded: "This file holds one translation. Open the page with the model to see a batch of sentences.", nothing: "This model has no norms in its trace.",
  },
  zh: {
    intro: "每个子层之前或之后有一个归一化（第 3.1 节）。LayerNorm 对一个词元的全部特征求均值和标准差；BatchNorm 对一个特征在整个批次的全部词元上求均值和标准差。这里两者都用这句话自己的激活值计算。",
    norm: "哪个归一化", place: "{stack}：{part}", final: "{stack}末尾", feature: "特征", axis: "在哪些数上求均值", one: "一个数的 LayerNorm",
    one_rms: "一个数的 RMSNorm", input: "归一化的输入 x", mean: "该词元的均值 μ", deviation: "该词元的 √(σ² + ε)", standardised: "x̂ = (x − μ) ÷ √(σ² + ε)",
    gain: "该特征的增益 γ（训练得到）", bias: "该特征的偏置 β（训练得到）", output: "输出 = γ x̂ + β", rms_mean: "均值：不减", rms_deviation: "该词元的 √(x² 的均值 + ε)", rms_standardised: "x̂ = x ÷ √(x² 的均值 + ε)", rms_output: "输出 = γ x̂",
    engine: "模型", computed: "在此计算", batch: "同一句话放进一个批次", batch_text: "再加入由同一模型处理的另外三句话，组成一个批次。较短的句子用填充补齐，{places} 个位置中有 {padding} 个是填充；这里填充的值为 0。",
    batch_model: "该模型自身用的是 BatchNorm。推理时它使用训练中累积的均值，一句话不受其他句子影响；训练时则使用批次的均值，如下所示。",
    raw: "归一化之前的 x", by_layer: "LayerNorm 的 x̂", by_rms: "RMSNorm 的 x̂", by_batch: "BatchNorm 的 x̂，只统计真实词元", by_padded: "BatchNorm 的 x̂，填充也计入",
    settings: "所选的数归一化之后的值", norm_name: "归一化", setting: "统计范围", count: "个数", mean_name: "均值", deviation_name: "标准差", result: "x̂",
    over_token: "该词元的全部特征", over_sentence: "该特征，仅这句话", over_batch: "该特征，全部句子", over_padding: "该特征，全部句子和填充",
    conclusion: "LayerNorm 在任何批次中结果都相同。BatchNorm 因同批的其他句子最多改变 {batch}；把填充计入则最多改变 {padding}：零把均值拉向 0，标准差平均变为原来的 {share}。",
    conclusion_none: "LayerNorm 在任何批次中结果都相同。BatchNorm 因同批的其他句子最多改变 {batch}；这个批次没有填充。",
    tracing: "正在计算另外三句话……", recorded: "这个文件只有一个句子的翻译。要看一个批次，请用模型打开本页面。", nothing: "该模型的追踪结果中没有归一化。",
  },
});

/** A norm of the model, such as encoder.self_attention or decoder.final. */
interface Place {
  stack: Stack;
  part: string;
}

function places(run: Run): Place[] {
  const { final_norm } = run.model.manifest.model;
  return (["encoder", "decoder"] as const).flatMap((stack) => [...sublayersOf(stack), ...(final_norm ? ["final"] : [])].map((part) => ({ stack, part })));
}

export function NormsView({ session }: { session: Session }) {
  useSession(session);
  const { store, shown: run } = session;
  const text = useTexts(store, TEXTS);
  const isTransformer = run?.model.manifest.model.architecture === "transformer";
  return (
    <div class="norms-view">
      <p>{text.intro}</p>
      {run && (isTransformer ? <NormsOfRun session={session} run={run} /> : <p class="muted">{text.nothing}</p>)}
    </div>
  );
}

function NormsOfRun({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const { state } = store;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const all = places(run);
  const chosen = all.find(({ stack, part }) => `${stack}.${part}` === state.options["norms.place"]) ?? all[0];
  if (chosen === undefined) return null;
  const { stack, part } = chosen;
  const name = part === "final" ? `${stack}.norm` : `${stack}.layers.${chosenLayer(run, state, stack)}.${part}_norm`;
  const titles: Record<string, string> = { self_attention: terms.self_attention, cross_attention: terms.cross_attention, feed_forward: terms.feed_forward };
  const { d_model } = run.model.manifest.model;
  const feature = Math.max(0, Math.min(d_model - 1, Number(state.options["norms.feature"] ?? 0) || 0));
  const title = (place: Place): string =>
    place.part === "final" ? text.final.replace("{stack}", terms[place.stack]) : text.place.replace("{stack}", terms[place.stack]).replace("{part}", titles[place.part] ?? "");
  return (
    <>
      <div class="controls">
        <Choice name="norm" title={text.norm} value={`${stack}.${part}`} options={all.map((place) => [`${place.stack}.${place.part}`, title(place)] as const)} onChange={(value) => store.setOption("norms.place", value)} />
        {part !== "final" && <LayerChoice session={session} run={run} stack={stack} />}
        <TokenChoice session={session} run={run} stack={stack} />
        <label>
          {text.feature}
          <input
            type="number" min={0} max={d_model - 1} value={feature} data-choice="feature"
            onInput={(event) => { if (/^\d{1,5}$/.test(event.currentTarget.value)) store.setOption("norms.feature", event.currentTarget.value); }}
          />
        </label>
      </div>
      <section class="part">
        <h3>{text.axis}</h3>
        <div class="cubes"><AxisCube store={store} norm="layer" /><AxisCube store={store} norm="batch" /></div>
      </section>
      <OneNumber session={session} run={run} name={name} token={chosenToken(run, state, stack)} feature={feature} />
      <Batch session={session} run={run} name={name} stack={stack} token={chosenToken(run, state, stack)} feature={feature} />
    </>
  );
}

/** The norm of the model for one number: what its engine has, beside what is computed here. */
function OneNumber({ session, run, name, token, feature }: { session: Session; run: Run; name: string; token: number; feature: number }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const tensors = usePresentTensors(session, run, ["input", "output", "mean", "deviation", "weight", "bias"].map((part) => `${name}.${part}`));
  const { d_model, norm, norm_epsilon } = run.model.manifest.model;
  if (tensors === undefined) return <p class="computing muted" role="status">{terms.computing}</p>;
  const get = (part: string): Tensor | undefined => tensors.get(`${name}.${part}`);
  const [input, output, mean, deviation, gain, bias] = ["input", "output", "mean", "deviation", "weight", "bias"].map(get);
  if (norm === "batch") return <p>{text.batch_model}</p>;
  if (!input || !output || !mean || !deviation) return null;
  const isRms = norm === "rms";
  const own = tokenStatistics(input.values.subarray(token * d_model, (token + 1) * d_model), d_model, norm_epsilon, { centred: !isRms });
  const at = token * d_model + feature;
  const value = input.values[at] ?? NaN;
  const [m, d] = [mean.values[token] ?? NaN, deviation.values[token] ?? NaN];
  const standardised = (value - (own.mean[0] ?? NaN)) / (own.deviation[0] ?? NaN);
  const [g, b] = [gain?.values[feature], bias?.values[feature] ?? 0];
  const rows: [string, string, number, number | null][] = [
    ["input", text.input, value, null],
    ["mean", isRms ? text.rms_mean : text.mean, m, own.mean[0] ?? NaN],
    ["deviation", isRms ? text.rms_deviation : text.deviation, d, own.deviation[0] ?? NaN],
    ["standardised", isRms ? text.rms_standardised : text.standardised, (value - m) / d, standardised],
    ...(g === undefined ? [] : [["gain", text.gain, g, null] as [string, string, number, null]]),
    ...(bias === undefined ? [] : [["bias", text.bias, b, null] as [string, string, number, null]]),
    ["output", bias === undefined ? text.rms_output : text.output, output.values[at] ?? NaN, g === undefined ? null : standardised * g + b],
  ];
  return (
    <section class="part">
      <h3>{isRms ? text.one_rms : text.one}</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label={isRms ? text.one_rms : text.one}>
        <table class="numbers" data-norm={name}>
          <thead><tr><td /><th>{text.engine}</th><th>{text.computed}</th></tr></thead>
          <tbody>
            {rows.map(([part, title, number, here]) => (
              <tr key={part} data-part={part} data-value={number} data-computed={here ?? undefined}>
                <th>{title}</th><td>{formatNumber(number, 6)}</td><td>{here === null ? "" : formatNumber(here, 6)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

interface BatchNumbers {
  batch: PaddedBatch;
  layer: Statistics;
  alone: Statistics;
  real: Statistics;
  padded: Statistics;
  raw: Float32Array;
  byLayer: Float32Array;
  byAlone: Float32Array;
  byBatch: Float32Array;
  byPadded: Float32Array;
  changeByOthers: number;
  changeByPadding: number;
  shareOfDeviation: number;
}

function batchNumbers(inputs: readonly Float32Array[], numFeatures: number, epsilon: number, centred: boolean): BatchNumbers {
  const batch = padBatch(inputs, numFeatures);
  const own = inputs[0] ?? new Float32Array();
  const layer = tokenStatistics(batch.values, numFeatures, epsilon, { centred });
  const alone = featureStatistics(padBatch([own], numFeatures), epsilon, { padding: false });
  const real = featureStatistics(batch, epsilon, { padding: false });
  const padded = featureStatistics(batch, epsilon, { padding: true });
  const [byLayer, byBatch, byPadded] = [standardise(batch.values, numFeatures, layer, "token"), standardise(batch.values, numFeatures, real, "feature"), standardise(batch.values, numFeatures, padded, "feature")];
  const byAlone = standardise(own, numFeatures, alone, "feature");
  const change = (from: Float32Array, to: Float32Array): number => own.reduce((most, _, index) => Math.max(most, Math.abs((from[index] ?? 0) - (to[index] ?? 0))), 0);
  return {
    batch, layer, alone, real, padded, raw: batch.values, byLayer, byAlone, byBatch, byPadded,
    changeByOthers: change(byAlone, byBatch), changeByPadding: change(byBatch, byPadded),
    shareOfDeviation: real.deviation.reduce((sum, one, index) => sum + (padded.deviation[index] ?? 0) / one, 0) / numFeatures,
  };
}

function Batch({ session, run, name, stack, token, feature }: { session: Session; run: Run; name: string; stack: Stack; token: number; feature: number }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const [box, width] = useWidth(640);
  const batch = useBatch(session, run);
  const inputs = [0, 1, 2, 3].map((index) => usePresentTensors(session, batch?.[index] ?? null, [`${name}.input`])?.get(`${name}.input`));
  const { d_model, norm, norm_epsilon } = run.model.manifest.model;
  const present = inputs.filter((one) => one !== undefined);
  const isReady = batch !== undefined && present.length === batch.length;
  const found = useMemo(
    () => (isReady ? batchNumbers(present.map(({ values }) => values), d_model, norm_epsilon, norm !== "rms") : undefined),
    [isReady, name, ...inputs],
  );
  if (!canTraceOthers(session)) return <p class="muted">{text.recorded}</p>;
  if (!isReady || found === undefined) return <p class="computing muted" role="status" ref={box}>{text.tracing}</p>;
  const side = sideOf(stack);
  const { numTokens, lengths } = found.batch;
  const labels = batch.flatMap((one) => {
    const tokens = tokensOf(one, side);
    return Array.from({ length: numTokens }, (_, index) => tokens[index] ?? "·");
  });
  const isPadding = (row: number): boolean => row % numTokens >= (lengths[Math.floor(row / numTokens)] ?? 0);
  const numPadding = lengths.reduce((sum, length) => sum + numTokens - length, 0);
  const room = Math.max(160, (width >= 864 ? (width - 24) / 2 : width) - 88);
  const map = (stage: string, title: string, values: Float32Array, masked: boolean) => (
    <StageMatrix
      store={store} name={stage} symbol={title} title={title} matrix={{ values, numRows: labels.length, numColumns: d_model }} width={room} height={Math.min(11 * labels.length, 600)}
      rowLabels={labels} selected={{ row: token, column: feature }} isMasked={masked ? isPadding : undefined} maximum={stage === "raw" ? undefined : 4}
      onSelect={(row, column) => {
        const chosen = row < (lengths[0] ?? 0) ? row : token;
        store.update({ options: { ...store.state.options, "norms.feature": String(column) }, ...(stack === "encoder" ? { key: chosen } : { step: chosen }) });
      }}
    />
  );
  const at = token * d_model + feature;
  const rows: [string, string, string, Statistics, number, number][] = [
    ["layer", norm === "rms" ? "RMSNorm" : "LayerNorm", text.over_token, found.layer, token, found.byLayer[at] ?? NaN],
    ["alone", "BatchNorm", text.over_sentence, found.alone, feature, found.byAlone[at] ?? NaN],
    ["batch", "BatchNorm", text.over_batch, found.real, feature, found.byBatch[at] ?? NaN],
    ["padding", "BatchNorm", text.over_padding, found.padded, feature, found.byPadded[at] ?? NaN],
  ];
  const numbers = { batch: formatNumber(found.changeByOthers, 2), padding: formatNumber(found.changeByPadding, 2), share: formatPercent(found.shareOfDeviation) };
  return (
    <>
      <section class="part" data-padding={numPadding} data-places={labels.length}>
        <h3>{text.batch}</h3>
        <p class="small">{text.batch_text.replace("{padding}", String(numPadding)).replace("{places}", String(labels.length))}</p>
        <ol class="small">
          {batch.map((one, index) => <li key={index} class={index === 0 ? "chosen-cell" : ""}>{side === "source" ? one.text : one.output} <span class="muted number">({lengths[index]})</span></li>)}
        </ol>
      </section>
      <section class="part">
        <h3>{text.settings} <span class="number">x[{tokensOf(run, side)[token]}, {feature}] = {formatNumber(found.raw[at] ?? NaN, 5)}</span></h3>
        <div class="scroll" tabIndex={0} role="region" aria-label={text.settings}>
          <table class="numbers">
            <thead><tr><th>{text.norm_name}</th><th>{text.setting}</th><th>{text.count}</th><th>{text.mean_name}</th><th>{text.deviation_name}</th><th>{text.result}</th></tr></thead>
            <tbody>
              {rows.map(([setting, title, over, statistics, place, value]) => (
                <tr key={setting} data-setting={setting} data-mean={statistics.mean[place]} data-deviation={statistics.deviation[place]} data-count={statistics.count} data-value={value}>
                  <th>{title}</th><th>{over}</th><td>{statistics.count}</td><td>{formatNumber(statistics.mean[place] ?? NaN, 4)}</td><td>{formatNumber(statistics.deviation[place] ?? NaN, 4)}</td><td>{formatNumber(value, 4)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        <p data-change-by-others={found.changeByOthers} data-change-by-padding={found.changeByPadding}>
          {(numPadding > 0 ? text.conclusion : text.conclusion_none).replace("{batch}", numbers.batch).replace("{padding}", numbers.padding).replace("{share}", numbers.share)}
        </p>
      </section>
      <section class="part" ref={box}>
        <div class="maps">
          {map("raw", text.raw, found.raw, true)}
          {map("by-layer", norm === "rms" ? text.by_rms : text.by_layer, found.byLayer, true)}
          {map("by-batch", text.by_batch, found.byBatch, true)}
          {map("by-padded", text.by_padded, found.byPadded, false)}
        </div>
      </section>
    </>
  );
}
