/** Attention is not explanation: what happens when a source token is left out, beside the attention that it gets. */

import "./explanation.css";

import { useMemo } from "preact/hooks";

import { attentionPlaces, chosenAttention, numTags } from "../attention_axes.js";
import { attentionName } from "../chosen.js";
import { largest } from "../components/heatmap.js";
import { LinkedMatrix } from "../components/linked_matrix.js";
import { spearman } from "../measures/correlation.js";
import { argmax } from "../measures/distributions.js";
import { meanOverHeads } from "../measures/heads.js";
import { type Group, groups, groupWeights } from "../pieces.js";
import { currentStep, type Run, type Session, usePresentTensors, useSession } from "../session.js";
import { each, useTask } from "../task.js";
import { formatNumber, formatPercent, TERMS, texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: {
    lead:
      "The paper expects attention to make models easier to interpret (section 4). But a weight says where a head looks, not what the prediction depends on. " +
      "Here each source token is left out once, the translation is kept, and the probability of every token is computed again.",
    papers: "Jain and Wallace (2019) found that attention weights often do not explain a prediction; Wiegreffe and Pinter (2019) answered that this depends on what counts as an explanation.",
    from: "Attention", last: "last layer, mean of all heads", all: "all layers, mean of all heads", chosen: (layer: number, head: number) => `layer ${layer}, head ${head}`,
    special: "With the language tag and the end token", special_end: "With the end token", predicts: "predicted", key: "source",
    attention: "Attention weights", drop: "Loss of log-probability when left out", blue: (max: string) => `Blue: less probable without it, by up to ${max}. Orange: more probable without it.`,
    weights_note: (max: string) => `Of the step that predicts the token; the strongest colour stands for ${max}.`,
    progress: (done: number, total: number) => `Left out ${done} of ${total}`, start: (count: number) => `Leave out ${count} tokens, one after another`,
    limit: (count: number) => `The source is long: only the ${count} tokens with most attention over all steps are left out.`,
    shift: "Without a token, those after it stand one position earlier.",
    agree: (token: string, key: string, weight: string, drop: string) =>
      `The step that predicts “${token}” attends most to “${key}” (${weight}), and leaving out “${key}” costs it most (${drop} of log-probability).`,
    differ: (token: string, key: string, weight: string, needed: string, drop: string) =>
      `The step that predicts “${token}” attends most to “${key}” (${weight}), but leaving out “${needed}” costs it most (${drop} of log-probability).`,
    overall: (same: number, all: number, rho: string) => `The two name the same source token for ${same} of ${all} tokens; Spearman's rank correlation over all pairs is ${rho}.`,
    token: "Token", most: "Most attended", needed: "Most needed", rho: "Rank correlation", none: "This model has no cross-attention.", nothing: "The source has no token that could be left out.",
  },
  zh: {
    lead:
      "论文认为注意力可以让模型更容易解释（第 4 节）。但权重只表示一个头在看哪里，并不等于预测依赖什么。" +
      "这里每次去掉源句的一个词元，译文保持不变，重新计算每个词元的概率。",
    papers: "Jain 与 Wallace（2019）发现注意力权重往往不能解释预测；Wiegreffe 与 Pinter（2019）回应说，这取决于什么才算解释。",
    from: "注意力", last: "最后一层，所有头的平均", all: "所有层，所有头的平均", chosen: (layer: number, head: number) => `第 ${layer} 层，第 ${head} 个头`,
    special: "包括语言标记和结束标记", special_end: "包括结束标记", predicts: "被预测", key: "源句",
    attention: "注意力权重", drop: "去掉后对数概率的下降", blue: (max: string) => `蓝色：去掉后概率变小，最多下降 ${max}。橙色：去掉后概率变大。`,
    weights_note: (max: string) => `取预测该词元的一步；颜色最强处为 ${max}。`,
    progress: (done: number, total: number) => `已去掉 ${done}/${total}`, start: (count: number) => `逐个去掉 ${count} 个词元`,
    limit: (count: number) => `源句较长：只去掉各步合计得到注意力最多的 ${count} 个词元。`,
    shift: "去掉一个词元后，它后面的词元都前移一位。",
    agree: (token: string, key: string, weight: string, drop: string) => `预测“${token}”的一步最关注“${key}”（${weight}），去掉“${key}”后对数概率也下降最多（${drop}）。`,
    differ: (token: string, key: string, weight: string, needed: string, drop: string) =>
      `预测“${token}”的一步最关注“${key}”（${weight}），但去掉“${needed}”后对数概率下降最多（${drop}）。`,
    overall: (same: number, all: number, rho: string) => `${all} 个词元中有 ${same} 个，两种方法指向同一个源词元；全部配对的 Spearman 秩相关系数为 ${rho}。`,
    token: "词元", most: "最受关注", needed: "影响最大", rho: "秩相关系数", none: "该模型没有交叉注意力。", nothing: "源句没有可以去掉的词元。",
  },
});

const [ATTENTION, SPECIAL, START] = ["explanation.attention", "explanation.special", "explanation.start"] as const;
const MAX_UNITS = 64;
/** More than this many traces wait for a click. */
const MAX_UNASKED = 40;

/** The log-probability of each chosen token without each of the units; row t, column u. */
async function leaveOneOut(run: Run, units: readonly Group[], report: (done: number, total: number) => void): Promise<Float32Array> {
  const before = run.chosen.map((_token, step) => run.candidates[step]?.next.log_prob ?? NaN);
  const columns = await each(
    units,
    async ({ start, end }) => {
      const source = run.source.filter((_id, index) => index < start || index >= end);
      const { candidates = [] } = await run.model.trace(run.text, {
        source, target: run.target.slice(1), candidates: 1, wanted: [], interventions: run.interventions,
      });
      return candidates.map(({ next }) => next.log_prob);
    },
    report,
  );
  const drops = new Float32Array(run.chosen.length * units.length);
  for (const [column, after] of columns.entries())
    for (const [step, log_prob] of before.entries()) drops[step * units.length + column] = log_prob - (after[step] ?? NaN);
  return drops;
}

/** Sums over the steps of each row. */
function sumRows(values: Float32Array, numColumns: number, rows: readonly Group[]): Float32Array {
  const found = new Float32Array(rows.length * numColumns);
  for (const [row, { start, end }] of rows.entries())
    for (let step = start; step < end; ++step)
      for (let column = 0; column < numColumns; ++column) found[row * numColumns + column] = (found[row * numColumns + column] ?? 0) + (values[step * numColumns + column] ?? 0);
  return found;
}

export function ExplanationView({ session }: { session: Session }) {
  useSession(session);
  const { store, shown: run } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  return (
    <div class="explanation-view">
      <p class="lead">{text.lead}</p>
      {run === null ? <p class="muted computing" role="status">{terms.computing}</p> : <Comparison session={session} run={run} />}
      <p class="small muted lead">{text.papers}</p>
    </div>
  );
}

function Comparison({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const { state } = store;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const place = attentionPlaces(run.model).find(({ kind }) => kind === "cross");
  const chosen = chosenAttention(run.model, { ...state, attention: "cross" });
  const last = (place?.numLayers ?? 1) - 1;
  const option = state.options[ATTENTION] ?? "last";
  const layers = option === "all" ? Array.from({ length: last + 1 }, (_, layer) => layer) : [option === "head" ? chosen.layer : last];
  const names = place ? layers.map((layer) => `${attentionName(place.kind, layer)}.weights`) : [];
  const lastName = place ? `${attentionName(place.kind, last)}.weights` : "";
  const tensors = usePresentTensors(session, run, [...names, lastName].filter(Boolean));
  const withSpecial = state.options[SPECIAL] === "1";
  const tags = numTags(run.model);

  const weights = useMemo(() => {
    const found = names.flatMap((name) => tensors?.get(name) ?? []);
    if (found.length < names.length || found.length === 0) return null;
    const each = found.map(({ shape, values }) => {
      const [numHeads = 1] = shape;
      const size = values.length / numHeads;
      return option === "head" ? values.subarray(chosen.head * size, (chosen.head + 1) * size) : meanOverHeads(values, numHeads);
    });
    return Float32Array.from(each[0] ?? [], (_value, index) => each.reduce((sum, one) => sum + (one[index] ?? 0), 0) / each.length);
  }, [tensors?.size, names.join(), option, chosen.head, run]);
  const lastTensor = tensors?.get(lastName);
  const { units, isLimited } = useMemo(() => {
    const all = groups(run.sourcePieces, { words: state.words });
    const wanted = withSpecial && run.source.length > 1 ? all : all.filter(({ start, end }) => start >= tags && end < run.source.length);
    if (wanted.length <= MAX_UNITS || lastTensor === undefined) return { units: wanted, isLimited: false };
    const mean = meanOverHeads(lastTensor.values, lastTensor.shape[0] ?? 1);
    const attended = groupWeights(mean, run.source.length, [{ start: 0, end: run.numSteps, text: "", kind: "word" }], wanted);
    const kept = new Set(Array.from(attended.keys()).sort((a, b) => (attended[b] ?? 0) - (attended[a] ?? 0)).slice(0, MAX_UNITS));
    return { units: wanted.filter((_unit, index) => kept.has(index)), isLimited: true };
  }, [run, state.words, withSpecial, tags, lastTensor]);

  const isStarted = units.length <= MAX_UNASKED || state.options[START] === "1";
  const isReady = tensors !== undefined && weights !== null && units.length > 0;
  const task = useTask(session, run, isReady && isStarted ? `leave one out ${state.words} ${withSpecial}` : null, (report) => leaveOneOut(run, units, report));
  if (place === undefined || (tensors !== undefined && tensors.get(lastName) === undefined)) return <p class="muted">{text.none}</p>;
  if (units.length === 0) return <p class="muted">{text.nothing}</p>;
  return (
    <>
      <div class="controls">
        <label>
          {text.from}
          <select class="explanation-attention" value={option} onChange={(event) => store.setOption(ATTENTION, event.currentTarget.value === "last" ? undefined : event.currentTarget.value)}>
            <option value="last">{text.last}</option>
            {last > 0 && <option value="all">{text.all}</option>}
            <option value="head">{text.chosen(chosen.layer + 1, chosen.head + 1)}</option>
          </select>
        </label>
        <label>
          <input type="checkbox" checked={withSpecial} onChange={(event) => store.setOption(SPECIAL, event.currentTarget.checked ? "1" : undefined)} />
          {tags > 0 ? text.special : text.special_end}
        </label>
      </div>
      {(isLimited || units.length > MAX_UNITS) && <p class="small">{text.limit(MAX_UNITS)}</p>}
      {!isStarted && <p><button type="button" class="start" onClick={() => store.setOption(START, "1")}>{text.start(Math.min(units.length, MAX_UNITS))}</button></p>}
      {task.result !== undefined && weights !== null ? (
        <Matrices session={session} run={run} units={units} weights={weights} drops={task.result} />
      ) : (
        isStarted && (
          <p class="controls muted computing" role="status">
            {task.total > 0 ? text.progress(task.done, task.total) : terms.computing}
            {task.total > 0 && <progress max={task.total} value={task.done} aria-label={text.drop} />}
          </p>
        )
      )}
    </>
  );
}

/** The row with the largest loss among those where attention and loss differ, or among all. */
function exampleOf(differs: readonly boolean[], losses: Float32Array, numColumns: number): number {
  const most = differs.map((_one, row) => Math.max(...losses.subarray(row * numColumns, (row + 1) * numColumns)));
  return argmax(differs.includes(true) ? most.map((loss, row) => (differs[row] ? loss : -Infinity)) : most);
}

interface MatricesProps {
  session: Session;
  run: Run;
  units: readonly Group[];
  weights: Float32Array;
  drops: Float32Array;
}

function Matrices({ session, run, units, weights, drops }: MatricesProps) {
  const { store } = session;
  const { words } = store.state;
  const text = useTexts(store, TEXTS);
  const found = useMemo(() => {
    const rows = groups(run.chosenPieces, { words });
    const attention = groupWeights(weights, run.source.length, rows, units);
    const losses = sumRows(drops, units.length, rows);
    const of = (values: Float32Array, row: number): Float32Array => values.subarray(row * units.length, (row + 1) * units.length);
    const comparisons = rows.map((_row, row) => ({
      most: argmax(of(attention, row)), needed: argmax(of(losses, row)), rho: spearman(of(attention, row), of(losses, row)),
    }));
    return { rows, attention, losses, comparisons, rho: spearman(attention, losses), queries: rows.map((row) => ({ ...row, start: row.start + 1, end: row.end + 1 })) };
  }, [run, words, units, weights, drops]);

  const { rows, attention, losses, comparisons, queries } = found;
  const step = currentStep(session);
  const isStepChosen = store.state.step >= 0 || store.playedStep !== null;
  const visible = rows.filter(({ start }) => start <= step).length;
  const current = isStepChosen ? visible - 1 : exampleOf(comparisons.map(({ most, needed }) => most !== needed), losses, units.length);
  const { most = 0, needed = 0 } = comparisons[current] ?? {};
  const at = (values: Float32Array, column: number): number => values[current * units.length + column] ?? 0;
  const [token, key, other] = [rows[current]?.text ?? "", units[most]?.text ?? "", units[needed]?.text ?? ""];
  const [weight, drop] = [formatPercent(at(attention, most)), formatNumber(at(losses, needed), 3)];
  const same = comparisons.filter((one) => one.most === one.needed).length;
  const rho = (value: number): string => (Number.isNaN(value) ? "–" : formatNumber(value, 2));
  const linked = { store, queries, keys: units, querySide: "target", keySide: "source", rowAxis: text.predicts, columnAxis: text.key, visibleRows: visible } as const;
  const choose = (row: number): void => store.update({ step: rows[row]?.start ?? -1 });
  return (
    <>
      <p class="finding">
        {most === needed ? text.agree(token, key, weight, drop) : text.differ(token, key, weight, other, drop)}{" "}
        <span data-rho={found.rho} data-same={same}>{text.overall(same, rows.length, rho(found.rho))}</span>
      </p>
      <div class="explanation-pair">
        <section>
          <h3>{text.attention}</h3>
          <LinkedMatrix {...linked} title={text.attention} values={attention} scale={{ kind: "sequential", max: largest(attention) }} onSelect={choose} />
          <p class="small muted">{text.weights_note(formatPercent(largest(attention)))}</p>
        </section>
        <section>
          <h3>{text.drop}</h3>
          <LinkedMatrix {...linked} title={text.drop} values={losses} scale={{ kind: "diverging", max: largest(losses) }} onSelect={choose} />
          <p class="small muted">{text.blue(formatNumber(Math.max(0, ...losses), 3))} {text.shift}</p>
        </section>
      </div>
      <div class="scroll comparisons-scroll" tabIndex={0} role="region" aria-label={text.rho}>
        <table class="numbers comparisons">
          <thead><tr><th scope="col">{text.token}</th><th scope="col">{text.most}</th><th scope="col">{text.needed}</th><th scope="col">{text.rho}</th></tr></thead>
          <tbody>
            {comparisons.slice(0, visible).map((one, row) => (
              <tr key={row} data-row={row} data-rho={one.rho} data-most={units[one.most]?.start} data-needed={units[one.needed]?.start} class={row === current ? "current" : ""}>
                <th scope="row"><button type="button" class="token target" aria-pressed={row === current} onClick={() => choose(row)}>{rows[row]?.text}</button></th>
                <td>{units[one.most]?.text} {formatPercent(attention[row * units.length + one.most] ?? 0)}</td>
                <td class={one.most === one.needed ? "" : "differs"}>{units[one.needed]?.text} {formatNumber(losses[row * units.length + one.needed] ?? 0, 3)}</td>
                <td>{rho(one.rho)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
