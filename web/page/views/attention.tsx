/** The three attentions: the chosen head as curves and as a matrix, all heads as a wall, and the alignment. */

import "./attention.css";

import { useMemo, useState } from "preact/hooks";

import { type Axes, axesOf, chosenAttention, groupAt, MEAN_OF_HEADS, numTags } from "../attention_axes.js";
import { attentionName } from "../chosen.js";
import { AlignmentPanel } from "../components/alignment.js";
import { Arcs } from "../components/arcs.js";
import { HeadChooser } from "../components/head_chooser.js";
import { type Cell, LinkedMatrix } from "../components/linked_matrix.js";
import { type Thumbnail, Thumbnails } from "../components/thumbnails.js";
import type { Tensor } from "../../engine/src/index.js";
import { fullColour, type HeadLabel, type HeadPlaces, type HeadSummary, meanOverHeads, summariseHead, THRESHOLDS } from "../measures/heads.js";
import { groupWeights, labels } from "../pieces.js";
import { currentStep, type Run, type Session, usePresentTensors, useSession } from "../session.js";
import type { AttentionKind } from "../state.js";
import { ATTENTION_TITLES, formatNumber, formatPercent, TERMS, texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: {
    encoder: "Each token of the source attends to all tokens of the source. A row shows how one token divides its attention; it adds up to 1 (section 3.2.3).",
    decoder: "Each step of the decoder attends to the tokens read so far. Later tokens are masked: they get exactly 0 (sections 3.1 and 3.2.3).",
    cross: "Each step of the decoder attends to the source, while it reads one token of the translation and predicts the next (section 3.2.3).",
    rows: "A row is named after the token that the step reads; the token that it predicts stands on the right.",
    threshold: "Draw weights from", matrix: "Attention weights", reads: "reads", predicts: "predicts", key: "attended to", query: "attends",
    wall: "All heads", mean: "mean", none: "This model has no such attention.",
    wall_intro: "One picture a head: rows are queries, columns are keys. Choose one with a click. The words and numbers follow from the head's weights in this sentence.",
    how: "How the words are chosen",
    how_text:
      `A head is named after the kind of key that gets at least ${formatPercent(THRESHOLDS.mostly)} of its weights, on the mean over the rows. ` +
      `Otherwise it is “spread out” if its entropy is at least ${formatPercent(THRESHOLDS.spread)} of the largest possible, “nearby tokens” if ` +
      `${formatPercent(THRESHOLDS.near)} of its weights are at most two places away, “in order” if the rank correlation of steps and the places that ` +
      `they attend to is at least ${THRESHOLDS.monotonicity}, and “partly” something that gets at least ${formatPercent(THRESHOLDS.partly)}. ` +
      `Rows with a single visible key are left out. The number is that of the rule that applied; without one, the entropy.`,
    cell: "Chosen cell", cell_hint: "Choose a cell of the matrix to see its weight and scores.", work: "Work it out", attends: "attends to",
    of_words: "Sum over the subwords of the key, mean over those of the query.", entropy: "Entropy", bits: "bits", spread: "of the largest possible",
    distance: "Mean distance", tokens: "tokens", comma: ", ", colon: ": ",
    strongest: (weight: string) => `The sentence is long: the strongest colour stands for ${weight} instead of 100 %.`,
    self: "On itself", previous: "On the previous token", next: "On the next token", end: "On the end token",
    punctuation: "On punctuation", tag: "On the language tag", start: "On the start token", order: "Follows the source in order",
    over: "Means over the rows of this sentence.",
  },
  zh: {
    encoder: "源句的每个词元都关注源句的所有词元。每一行表示一个词元如何分配注意力，各权重之和为 1（第 3.2.3 节）。",
    decoder: "解码器的每一步只关注已经读入的词元；后面的词元被掩盖，权重恰好为 0（第 3.1 和 3.2.3 节）。",
    cross: "解码器的每一步读入译文的一个词元并预测下一个，同时关注源句（第 3.2.3 节）。",
    rows: "行名是该步读入的词元，右侧是该步预测的词元。",
    threshold: "只画不低于此值的权重", matrix: "注意力权重", reads: "读入", predicts: "预测", key: "被关注", query: "查询",
    wall: "所有的头", mean: "平均", none: "该模型没有这种注意力。",
    wall_intro: "每个头一张小图：行是查询，列是键。点击即可选中。文字和数字由该头在这句话上的权重算出。",
    how: "文字说明的依据",
    how_text:
      `如果某一类键得到的权重（按行平均）不低于 ${formatPercent(THRESHOLDS.mostly)}，就以它命名。否则，熵不低于最大值的 ${formatPercent(THRESHOLDS.spread)} 时为“分散”，` +
      `不少于 ${formatPercent(THRESHOLDS.near)} 的权重落在两个位置以内时为“附近的词元”，步序与所关注位置的秩相关系数不低于 ${THRESHOLDS.monotonicity} 时为“按顺序”，` +
      `某一类键得到的权重不低于 ${formatPercent(THRESHOLDS.partly)} 时为“部分看”它。只有一个可见键的行不计入。数字是所用规则的数值；没有规则适用时是熵。`,
    cell: "选中的单元格", cell_hint: "在矩阵中选一个单元格，查看它的权重和分数。", work: "查看计算过程", attends: "关注",
    of_words: "对键的各子词求和，对查询的各子词取平均。", entropy: "熵", bits: "比特", spread: "相对最大值",
    distance: "平均距离", tokens: "个词元", comma: "，", colon: "：",
    strongest: (weight: string) => `句子较长：最强的颜色表示 ${weight}，而不是 100 %。`,
    self: "看自身", previous: "看前一个词元", next: "看后一个词元", end: "看结束标记",
    punctuation: "看标点", tag: "看语言标记", start: "看开始标记", order: "与源句顺序的一致程度",
    over: "均为这句话各行的平均值。",
  },
});

const LABELS = texts({
  en: {
    self: "itself", previous: "previous token", next: "next token", end: "end token", punctuation: "punctuation", tag: "language tag", start: "start token",
    near: "nearby tokens", in_order: "in order", spread: "spread out", content: "no fixed pattern",
  },
  zh: {
    self: "自身", previous: "前一个词元", next: "后一个词元", end: "结束标记", punctuation: "标点", tag: "语言标记", start: "开始标记",
    near: "附近的词元", in_order: "按顺序", spread: "分散", content: "无固定模式",
  },
});

/** The words for a head in a sentence; the wall has the short ones. */
const SENTENCES = texts({
  en: {
    mostly: (label: string) => `mostly the ${label}`, partly: (label: string) => `partly the ${label}`, short: (label: string) => `partly ${label}`,
    self: "itself", punctuation: "punctuation", near: "mostly nearby tokens", head: (layer: number, head: number) => `layer ${layer}, head ${head}`,
    mean: (layer: number) => `layer ${layer}, mean of all heads`,
  },
  zh: {
    mostly: (label: string) => `主要看${label}`, partly: (label: string) => `部分看${label}`, short: (label: string) => `部分看${label}`,
    self: "自身", punctuation: "标点", near: "主要看附近的词元", head: (layer: number, head: number) => `第 ${layer} 层第 ${head} 个头`,
    mean: (layer: number) => `第 ${layer} 层所有头的平均`,
  },
});

const DEFAULT_THRESHOLD = 0.1;
const THRESHOLD = "attention.threshold";
const PUNCTUATION = /^[\p{P}\p{S}]+$/u;

export function AttentionView({ session }: { session: Session }) {
  useSession(session);
  const { store, shown: run } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  if (run === null) return <p class="muted computing" role="status">{terms.computing}</p>;
  const { place } = chosenAttention(run.model, store.state);
  return (
    <div class="attention-view">
      <p class="lead">{text[place.kind]}{place.kind !== "encoder" && ` ${text.rows}`}</p>
      <HeadChooser session={session} />
      <ChosenHeadPanel key={place.kind} session={session} run={run} />
      <Wall key={`wall ${place.kind}`} session={session} run={run} />
      {place.kind === "cross" && <AlignmentPanel session={session} run={run} />}
    </div>
  );
}

/** The weights of a head of shape (Q, K), or their mean over the heads. */
function weightsOf({ shape, values }: Tensor, head: number): Float32Array {
  const [numHeads = 1] = shape;
  if (head < 0) return meanOf(values, numHeads);
  const size = values.length / numHeads;
  return values.subarray(head * size, (head + 1) * size);
}

const means = new WeakMap<Float32Array, Float32Array>();

function meanOf(values: Float32Array, numHeads: number): Float32Array {
  const known = means.get(values) ?? meanOverHeads(values, numHeads);
  means.set(values, known);
  return known;
}

function ChosenHeadPanel({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const { state } = store;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const titles = useTexts(store, ATTENTION_TITLES);
  const names = useTexts(store, SENTENCES);
  const { place, layer, head, isMean } = chosenAttention(run.model, state);
  const name = `${attentionName(place.kind, layer)}.weights`;
  const found = usePresentTensors(session, run, [name]);
  const axes = useMemo(() => axesOf(run, place.kind, state.words), [run, place.kind, state.words]);
  const [pointed, setPointed] = useState<Cell | null>(null);
  const tensor = found?.get(name);
  const weights = useMemo(() => {
    if (tensor === undefined) return null;
    return groupWeights(weightsOf(tensor, isMean ? -1 : head), tensor.shape[2] ?? 1, axes.queries, axes.keys);
  }, [tensor, isMean, head, axes]);
  if (found !== undefined && tensor === undefined) return <p class="muted">{text.none}</p>;
  if (tensor === undefined || weights === null) return <p class="muted computing" role="status">{terms.computing}</p>;

  const strongest = fullColour(weights, axes.queries.length, axes.keys.length);
  const threshold = Number(state.options[THRESHOLD] ?? DEFAULT_THRESHOLD);
  const step = currentStep(session);
  const visibleRows = place.kind === "encoder" ? axes.queries.length : axes.queries.filter(({ start }) => start <= step).length;
  const [row, column] = [groupAt(axes.queries, state.query), groupAt(axes.keys, state.key)];
  const selected = row >= 0 && column >= 0 && row < visibleRows ? { row, column } : null;
  const select = (newRow: number, newColumn: number): void =>
    store.update({ query: axes.queries[newRow]?.start ?? -1, key: axes.keys[newColumn]?.start ?? -1 });
  const isMasked = (query: number, key: number): boolean =>
    place.kind === "decoder" && (axes.keys[key]?.start ?? 0) > (axes.queries[query]?.end ?? 0) - 1;
  const headName = `${titles[place.kind]}${text.comma}${isMean ? names.mean(layer + 1) : names.head(layer + 1, head + 1)}`;
  return (
    <>
      <div class="attention-pair">
        <div class="attention-arcs">
          <label class="controls small">
            {text.threshold}
            <input
              type="range" min="0.01" max="0.5" step="0.01" value={threshold}
              onInput={(event) => store.setOption(THRESHOLD, Number(event.currentTarget.value) === DEFAULT_THRESHOLD ? undefined : event.currentTarget.value)}
            />
            <output class="number">{formatPercent(threshold)}</output>
          </label>
          <Arcs
            store={store} title={headName} queries={axes.queries} keys={axes.keys} querySide={axes.querySide} keySide={axes.keySide} predicted={axes.predicted}
            queryAxis={axes.predicted ? `${text.reads} → ${text.predicts}` : text.query} keyAxis={text.key} weights={weights} threshold={threshold}
            visibleRows={visibleRows} selected={selected} onSelect={select}
          />
        </div>
        <LinkedMatrix
          store={store} title={`${text.matrix}: ${headName}`} values={weights} scale={{ kind: "sequential", max: strongest }} queries={axes.queries} keys={axes.keys}
          querySide={axes.querySide} keySide={axes.keySide} rowAxis={axes.predicted ? text.reads : text.query} columnAxis={text.key}
          {...(axes.predicted ? { endLabels: axes.predicted, endAxis: text.predicts } : {})} visibleRows={visibleRows} isMasked={isMasked} selected={selected}
          onSelect={select} onPoint={setPointed}
        />
      </div>
      {strongest !== 1 && <p class="small muted">{text.strongest(formatPercent(strongest))}</p>}
      <CellPanel session={session} run={run} axes={axes} cell={pointed ?? selected} selected={selected} weights={weights} isMasked={isMasked} />
      <Summary session={session} run={run} kind={place.kind} weights={weightsOf(tensor, isMean ? -1 : head)} name={headName} />
    </>
  );
}

interface CellProps {
  session: Session;
  run: Run;
  axes: Axes;
  cell: Cell | null;
  selected: Cell | null;
  weights: Float32Array;
  isMasked: (row: number, column: number) => boolean;
}

/** The weight of the cell that is pointed at or chosen; its scores, once it is chosen. */
function CellPanel({ session, run, axes, cell, selected, weights, isMasked }: CellProps) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const { place, layer, head, isMean } = chosenAttention(run.model, store.state);
  const [scoresName, scaledName] = [`${attentionName(place.kind, layer)}.scores`, `${attentionName(place.kind, layer)}.scaled_scores`];
  const wanted = selected !== null && !isMean;
  const found = usePresentTensors(session, run, wanted ? [scoresName, scaledName] : []);
  const query = axes.queries[cell?.row ?? -1];
  const key = axes.keys[cell?.column ?? -1];
  if (cell === null || query === undefined || key === undefined) return <p class="cell-panel small muted">{text.cell_hint}</p>;
  const single = query.end - query.start === 1 && key.end - key.start === 1;
  const weight = weights[cell.row * axes.keys.length + cell.column] ?? 0;
  const masked = isMasked(cell.row, cell.column);
  const valueOf = (name: string): number | undefined => {
    const tensor = found?.get(name);
    const [, numQueries = 0, numKeys = 0] = tensor?.shape ?? [];
    return tensor?.values[(head * numQueries + query.start) * numKeys + key.start];
  };
  const [score, scaled] = single && wanted ? [valueOf(scoresName), valueOf(scaledName)] : [undefined, undefined];
  const predicted = axes.predicted?.[cell.row];
  return (
    <div class="cell-panel" role="status" data-weight={weight} data-score={score} data-scaled-score={scaled}>
      <p>
        <b>{query.text}</b>{predicted && <span class="muted"> → {predicted}</span>} {text.attends} <b>{key.text}</b>
      </p>
      <dl class="numbers-row">
        <div><dt>{terms.weight}</dt><dd class="number">{formatNumber(weight, 4)}{masked && ` (${terms.masked})`}</dd></div>
        {scaled !== undefined && <div><dt>{terms.scaled}</dt><dd class="number">{formatNumber(scaled, 4)}</dd></div>}
        {score !== undefined && <div><dt>{terms.score}</dt><dd class="number">{formatNumber(score, 4)}</dd></div>}
      </dl>
      {!single && <p class="small muted">{text.of_words}</p>}
      {selected !== null && !isMean && run.lacks(scoresName) === false && (
        <button type="button" onClick={() => store.update({ view: "head", layer, head, attention: place.kind })}>{text.work} →</button>
      )}
    </div>
  );
}

/** What the rows and columns of a run's attention are, for the summaries of its heads. */
function placesOf(run: Run, kind: AttentionKind): HeadPlaces {
  const pieces = kind === "decoder" ? run.targetPieces : run.sourcePieces;
  return {
    kind,
    numQueries: kind === "encoder" ? run.source.length : run.numSteps,
    numKeys: pieces.length,
    punctuation: labels(pieces).map((label) => label.kind !== "control" && PUNCTUATION.test(label.text)),
    end: kind === "decoder" ? -1 : pieces.length - 1,
    numFirst: kind === "decoder" ? 1 : numTags(run.model),
  };
}

const summaries = new WeakMap<Float32Array, Map<number, HeadSummary>>();

/** Summaries are computed once for each head of a tensor. */
function summaryOf(tensor: Tensor, head: number, places: HeadPlaces): HeadSummary {
  const known = summaries.get(tensor.values) ?? new Map<number, HeadSummary>();
  summaries.set(tensor.values, known);
  const summary = known.get(head) ?? summariseHead(weightsOf(tensor, head), places);
  known.set(head, summary);
  return summary;
}

function labelKey(label: HeadLabel, kind: AttentionKind): Exclude<HeadLabel, "first"> | "tag" | "start" {
  return label === "first" ? (kind === "decoder" ? "start" : "tag") : label;
}

/** The words for a head: in the wall, and as the end of a sentence. */
function useDescription(session: Session): (summary: HeadSummary, kind: AttentionKind) => { short: string; long: string; number: string } {
  const words = useTexts(session.store, LABELS);
  const sentences = useTexts(session.store, SENTENCES);
  const text = useTexts(session.store, TEXTS);
  return (summary, kind) => {
    const { label, strength } = summary;
    const word = words[labelKey(label, kind)];
    const number =
      label === "content" ? `${formatNumber(summary.entropy, 2)} ${text.bits}` : label === "in_order" ? formatNumber(summary.monotonicity, 2) : formatPercent(summary[label]);
    if (strength === null) return { short: word, long: label === "near" ? sentences.near : word, number };
    const named = sentences[strength](word);
    const bare = label === "self" || label === "punctuation" ? named.replace(" the ", " ") : named;
    return { short: strength === "partly" ? sentences.short(word) : word, long: bare, number };
  };
}

function Summary({ session, run, kind, weights, name }: { session: Session; run: Run; kind: AttentionKind; weights: Float32Array; name: string }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const summary = useMemo(() => summariseHead(weights, placesOf(run, kind)), [weights, run, kind]);
  const description = useDescription(session)(summary, kind).long;
  const percent = (value: number): string | null => (Number.isNaN(value) ? null : formatPercent(value));
  const rows: [string, string | null, number][] = [
    [text.entropy, `${formatNumber(summary.entropy)} ${text.bits}, ${formatPercent(summary.spread)} ${text.spread}`, summary.entropy],
    [text.distance, Number.isNaN(summary.distance) ? null : `${formatNumber(summary.distance)} ${text.tokens}`, summary.distance],
    [text.self, percent(summary.self), summary.self], [text.previous, percent(summary.previous), summary.previous], [text.next, percent(summary.next), summary.next],
    [text.end, percent(summary.end), summary.end], [text.punctuation, percent(summary.punctuation), summary.punctuation],
    [kind === "decoder" ? text.start : text.tag, kind === "decoder" || numTags(run.model) > 0 ? percent(summary.first) : null, summary.first],
    [text.order, Number.isNaN(summary.monotonicity) ? null : formatNumber(summary.monotonicity, 2), summary.monotonicity],
  ];
  return (
    <section class="head-summary" aria-label={name}>
      <h3 data-label={summary.label} data-strength={summary.strength}>{name}{text.colon}{description}</h3>
      <dl class="numbers-row">
        {rows.map(([title, value, exact]) => value !== null && <div key={title}><dt>{title}</dt><dd class="number" data-value={exact}>{value}</dd></div>)}
      </dl>
      <p class="small muted">{text.over}</p>
    </section>
  );
}

function Wall({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const names = useTexts(store, SENTENCES);
  const describe = useDescription(session);
  const { place, layer, head, isMean } = chosenAttention(run.model, store.state);
  const { kind, numLayers, numHeads } = place;
  usePresentTensors(session, run, Array.from({ length: numLayers }, (_, index) => `${attentionName(place.kind, index)}.weights`));
  const places = useMemo(() => placesOf(run, kind), [run, kind]);
  const layers = Array.from({ length: numLayers }, (_, index) => {
    const tensor = run.get(`${attentionName(place.kind, index)}.weights`);
    const heads = tensor && [...(numHeads > 1 ? [-1] : []), ...Array.from({ length: numHeads }, (_value, one) => one)].map((one): Thumbnail => {
      const summary = summaryOf(tensor, one, places);
      const { short, number } = describe(summary, kind);
      return {
        layer: index, head: one, values: weightsOf(tensor, one), numRows: places.numQueries, numColumns: places.numKeys, summary,
        label: short, number, name: one < 0 ? names.mean(index + 1) : names.head(index + 1, one + 1),
      };
    });
    return { name: `${terms.layer} ${index + 1}`, heads: heads ?? null };
  });
  const { [MEAN_OF_HEADS]: _, ...options } = store.state.options;
  const choose = (newLayer: number, newHead: number): void =>
    store.update({ layer: newLayer, ...(newHead < 0 ? { options: { ...options, [MEAN_OF_HEADS]: "1" } } : { head: newHead, options }) });
  return (
    <section class="wall">
      <h3>{text.wall}</h3>
      <p class="small muted">{text.wall_intro}</p>
      <Thumbnails
        store={store} title={text.wall} layers={layers} chosen={{ layer, head: isMean ? -1 : head }} onSelect={choose}
        columns={[...(numHeads > 1 ? [text.mean] : []), ...Array.from({ length: numHeads }, (_value, one) => `${terms.head} ${one + 1}`)]}
      />
      <details class="small">
        <summary>{text.how}</summary>
        <p class="muted">{text.how_text}</p>
      </details>
    </section>
  );
}
