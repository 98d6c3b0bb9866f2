/** Positions (section 3.5): the sinusoids, learned vectors or rotations of the model, and what the model does without them. */

import "./positions.css";

import { useMemo } from "preact/hooks";

import { attentionName, chosenHead, chosenLayer, stackOf, tokensOf } from "../chosen.js";
import { Choice } from "../components/choosers.js";
import { Clock } from "../components/clock.js";
import { Heatmap, largest } from "../components/heatmap.js";
import { LineChart } from "../components/line_chart.js";
import { useWidth } from "../components/width.js";
import { dotsByDistance, encodings, frequencies, largestDifference, rotary, shift, shiftRotations, similarityByDistance, type Rotation } from "../measures/sinusoids.js";
import { type Run, type Session, usePresentTensors, useSession } from "../session.js";
import { useStore } from "../state.js";
import { formatNumber, TERMS, texts, useTexts } from "../text.js";

const TEXTS = texts({
  en: {
    sinusoidal: "Attention has no order of its own, so the model adds to each embedding a vector that depends on the position alone: sines and cosines of falling frequency (section 3.5).",
    learned: "Attention has no order of its own, so the model adds to each embedding a trained vector for its position (row E of Table 3 in the paper).",
    rotary: "This model adds nothing to the embeddings. It rotates each pair of numbers of a query and a key by an angle that grows with the position, so that q·k depends on the distance alone (newer than the paper).",
    none: "This model gets the order from its recurrent or convolutional layers and has no positional encoding.",
    without: "Without positions", with_positions: "With positions", without_positions: "Without positions",
    server: "The model runs on the server, which makes no changes.", recorded: "This file holds one translation; open the page with the model to change it.",
    map: "Positions × dimensions", formula: "PE(pos, 2i) = sin(pos ÷ 10000^(2i/{d})), PE(pos, 2i+1) = cos(…)", position: "Position p", offset: "Offset k",
    agreement: "The model's own vectors of this sentence differ from the formula by at most {difference}.",
    rows: "The labelled rows are the positions of this sentence.", dimension: "dimension",
    similarity: "Dot product of two positions", similarity_text: "PE(p)·PE(p + k) depends on the distance k alone: it is Σ cos(k·ω). Nearby positions have similar vectors, distant ones less so. The points are the tokens of this sentence, at their distances from position p.",
    distance: "distance", dot: "dot product", linear: "From p to p + k by a linear map",
    linear_text: "Each pair (sin, cos) is the hand of a clock. Moving k positions forward turns it by k·ω, whatever p is: PE(p + k) = M PE(p), where M has one 2 × 2 rotation for each pair.",
    error: "M PE({p}) differs from PE({q}) by at most {difference}.", clock: "pair {pair}, wavelength {wavelength}", pair: "pair", wavelength: "wavelength", angle: "angle k·ω", all: "All {count} pairs",
    learned_map: "The vectors of this sentence's positions", learned_similarity: "Dot products of the trained vectors", learned_text: "Nothing in the model makes these depend on the distance alone, and there is no vector beyond position {last}. The line is the mean over all pairs at a distance in this sentence.",
    rotary_map: "cos(p·ω) of each pair", rotary_shift: "Layer {layer}, head {head}: with all positions {shift} higher, the scores change by at most {difference}, and the largest score is {largest}.",
    rotary_turn: "From position p to p + k", rotary_rows: "The labelled rows are the positions of this sentence. Low pairs turn fast, high pairs slowly.",
  },
  zh: {
    sinusoidal: "注意力本身不区分顺序，所以模型给每个嵌入向量加上一个只与位置有关的向量：频率逐渐降低的正弦和余弦（第 3.5 节）。",
    learned: "注意力本身不区分顺序，所以模型给每个嵌入向量加上该位置的一个训练得到的向量（论文表 3 的 E 行）。",
    rotary: "该模型不在嵌入上加任何东西，而是把查询和键的每一对数旋转一个随位置增大的角度，使 q·k 只与距离有关（晚于论文的方法）。",
    none: "该模型的顺序信息来自循环层或卷积层，没有位置编码。",
    without: "去掉位置编码", with_positions: "有位置编码", without_positions: "无位置编码",
    server: "该模型在服务器上运行，不支持干预。", recorded: "这个文件只有一个翻译结果；要做干预，请用模型打开本页面。",
    map: "位置 × 维度", formula: "PE(pos, 2i) = sin(pos ÷ 10000^(2i/{d}))，PE(pos, 2i+1) = cos(…)", position: "位置 p", offset: "偏移 k",
    agreement: "模型中这句话的位置向量与公式最多相差 {difference}。",
    rows: "带标签的行是这句话占用的位置。", dimension: "维度",
    similarity: "两个位置的内积", similarity_text: "PE(p)·PE(p + k) 只与距离 k 有关，等于 Σ cos(k·ω)：相邻位置相似，远处的位置差别较大。圆点是这句话的各个词元到位置 p 的距离。",
    distance: "距离", dot: "内积", linear: "从 p 到 p + k 的线性映射",
    linear_text: "每一对 (sin, cos) 就像一根钟表指针。位置前进 k，指针转过 k·ω，与 p 无关：PE(p + k) = M PE(p)，M 由每对一个 2 × 2 旋转矩阵组成。",
    error: "M PE({p}) 与 PE({q}) 最多相差 {difference}。", clock: "第 {pair} 对，波长 {wavelength}", pair: "对", wavelength: "波长", angle: "角度 k·ω", all: "全部 {count} 对",
    learned_map: "这句话各位置的向量", learned_similarity: "训练得到的向量之间的内积", learned_text: "模型并不保证内积只与距离有关，位置 {last} 之后也没有向量。折线是这句话中每个距离上所有位置对的平均值。",
    rotary_map: "每一对的 cos(p·ω)", rotary_shift: "第 {layer} 层第 {head} 个头：所有位置加 {shift}，分数最多改变 {difference}；最大的分数是 {largest}。",
    rotary_turn: "从位置 p 转到 p + k", rotary_rows: "带标签的行是这句话占用的位置。编号小的对转得快，编号大的对转得慢。",
  },
});

const NUM_POSITIONS = 40;
const MAX_POSITIONS = 512;

export function PositionsView({ session }: { session: Session }) {
  useSession(session);
  const { store, base: run } = session;
  const text = useTexts(store, TEXTS);
  if (run === null) return null;
  const { positions, architecture } = run.model.manifest.model;
  if (architecture !== "transformer") return <div class="positions-view"><p>{text.none}</p></div>;
  return (
    <div class="positions-view" data-positions={positions}>
      <p>{text[positions]}</p>
      <Switch session={session} run={run} />
      {positions === "sinusoidal" ? <Sinusoids session={session} run={run} /> : positions === "learned" ? <Learned session={session} run={run} /> : <Rotary session={session} run={run} />}
    </div>
  );
}

/** Adds the interventions that take the positions away from both stacks, or removes them. */
function Switch({ session, run }: { session: Session; run: Run }) {
  const { store, changed, siteModel } = session;
  const text = useTexts(store, TEXTS);
  const others = store.state.interventions.filter(({ kind }) => kind !== "no_positions");
  const isOff = others.length < store.state.interventions.length;
  const kind = siteModel?.kind;
  const cannot = kind === "server" || kind === "recorded";
  const toggle = (): void => {
    const without = (["encoder", "decoder"] as const).map((stack) => ({ kind: "no_positions" as const, stack }));
    const interventions = isOff ? others : [...others, ...without];
    store.update({ interventions, run: interventions.length > 0 ? "changed" : "base" });
  };
  return (
    <>
      <div class="controls">
        <button type="button" aria-pressed={isOff} data-action="no-positions" disabled={cannot} onClick={toggle}>{text.without}</button>
        {cannot && <span class="muted small">{kind === "server" ? text.server : text.recorded}</span>}
      </div>
      {isOff && (
        <dl class="translations" data-state={changed ? "changed" : "computing"}>
          <dt class="muted">{text.with_positions}</dt><dd data-translation="base">{run.output}</dd>
          <dt class="muted">{text.without_positions}</dt><dd data-translation="changed">{changed?.output ?? "…"}</dd>
        </dl>
      )}
    </>
  );
}

/** Positions 0 … of a map; those of the sentence have the tokens as labels. */
function positionLabels(tokens: readonly string[]): string[] {
  const count = Math.min(MAX_POSITIONS, Math.max(NUM_POSITIONS, tokens.length));
  return Array.from({ length: count }, (_, position) => (position < tokens.length ? `${position} ${tokens[position]}` : position % 10 === 0 ? String(position) : ""));
}

function useChosenPositions({ store }: Session, tokens: readonly string[]): { p: number; k: number } {
  const number = (name: string, fallback: number): number => {
    const text = store.state.options[name];
    return text !== undefined && /^-?\d{1,4}$/.test(text) ? Number(text) : fallback;
  };
  return { p: Math.max(0, Math.min(tokens.length - 1, number("positions.p", Math.min(1, tokens.length - 1)))), k: Math.max(-500, Math.min(500, number("positions.k", 3))) };
}

function PositionChoices({ session, tokens, p, k }: { session: Session; tokens: readonly string[]; p: number; k: number }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  return (
    <div class="controls">
      <Choice
        name="position" title={text.position} value={String(p)} options={tokens.map((token, position) => [String(position), `${position} ${token}`] as const)}
        onChange={(value) => store.setOption("positions.p", value)}
      />
      <label>
        {text.offset}
        <input
          type="number" min={-500} max={500} data-choice="offset" value={k}
          onInput={(event) => { if (/^-?\d{1,3}$/.test(event.currentTarget.value)) store.setOption("positions.k", event.currentTarget.value); }}
        />
      </label>
    </div>
  );
}

function Sinusoids({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const [box, width] = useWidth(640);
  const tensors = usePresentTensors(session, run, ["source_positions"]);
  const tokens = tokensOf(run, "source");
  const { p, k } = useChosenPositions(session, tokens);
  const { d_model } = run.model.manifest.model;
  const labels = positionLabels(tokens);
  const table = useMemo(() => encodings(labels.length, d_model), [labels.length, d_model]);
  const own = tensors?.get("source_positions");
  const hover = useStore(store, () => store.hover);
  const ownDifference = useMemo(() => own && largestDifference(own.values, encodings(tokens.length, d_model)), [own]);
  const similarity = similarityByDistance(Math.max(60, tokens.length), d_model);
  const rotations = shiftRotations(k, d_model);
  const vector = (position: number): Float32Array =>
    own && position >= 0 && position < tokens.length ? own.values.subarray(position * d_model, (position + 1) * d_model) : encodingOf(position, d_model);
  const difference = largestDifference(shift(vector(p), rotations), vector(p + k));
  const cell = (store.state.options["positions.cell"] ?? "").split("-").map(Number);
  const [row = 0, column = 0] = cell.length === 2 && cell.every((one) => one >= 0) ? [Math.min(cell[0] ?? 0, labels.length - 1), Math.min(cell[1] ?? 0, d_model - 1)] : [p, 0];
  const angle = row * (frequencies(d_model)[Math.floor(column / 2)] ?? 0);
  return (
    <>
      <section class="part" ref={box}>
        <h3>{text.map}</h3>
        <p class="small">{text.formula.replace("{d}", String(d_model))} {text.rows}</p>
        <div class="scroll">
          <Heatmap
            store={store} title={text.map} values={table} numRows={labels.length} numColumns={d_model} scale={{ kind: "diverging", max: 1 }}
            cellWidth={cellFor(width, d_model)} cellHeight={labels.length > 60 ? 2 : 12} {...(labels.length > 60 ? {} : { rowLabels: labels })}
            selected={{ row, column }} onSelect={(y, x) => store.setOption("positions.cell", `${y}-${x}`)}
            onHover={(y) => store.setHover(y < tokens.length ? { side: "source", index: y } : null)} onLeave={() => store.setHover(null)}
          />
        </div>
        <p class="small number" data-row={row} data-column={column} data-value={column % 2 === 0 ? Math.sin(angle) : Math.cos(angle)}>
          PE({row}, {column}) = {column % 2 === 0 ? "sin" : "cos"}({row} ÷ 10000^({column - (column % 2)}/{d_model})) = {column % 2 === 0 ? "sin" : "cos"}({formatNumber(angle, 5)}) = {formatNumber(column % 2 === 0 ? Math.sin(angle) : Math.cos(angle), 6)}
        </p>
        {ownDifference !== undefined
          ? <p class="muted small" data-difference={ownDifference}>{text.agreement.replace("{difference}", formatNumber(ownDifference, 2))}</p>
          : <p class="computing muted small" role="status">{terms.computing}</p>}
      </section>
      <PositionChoices session={session} tokens={tokens} p={p} k={k} />
      <section class="part">
        <h3>{text.similarity}</h3>
        <p class="small">{text.similarity_text}</p>
        <LineChart
          title={text.similarity} width={Math.min(width, 720)} xLabel={text.distance} yLabel={text.dot}
          lines={[{ name: "PE(p)·PE(p + k)", hue: "source", points: Array.from({ length: 2 * similarity.length - 1 }, (_, index) => [index - similarity.length + 1, similarity[Math.abs(index - similarity.length + 1)] ?? 0] as const) }]}
          marks={tokens.map((token, position) => ({ x: position - p, y: similarity[Math.abs(position - p)] ?? 0, label: `${position} ${token}`, lit: hover?.side === "source" && hover.index === position }))}
        />
      </section>
      <section class="part">
        <h3>{text.linear}</h3>
        <p class="small">{text.linear_text}</p>
        <p class="small" data-shift-error={difference}>{text.error.replace("{p}", String(p)).replace("{q}", String(p + k)).replace("{difference}", formatNumber(difference, 2))}</p>
        <Rotations session={session} rotations={rotations} position={p} offset={k} />
      </section>
    </>
  );
}

interface RotationsProps {
  session: Session;
  rotations: readonly Rotation[];
  position: number;
  offset: number;
  cosineFirst?: boolean;
}

function Rotations({ session: { store }, rotations, position, offset, cosineFirst = false }: RotationsProps) {
  const text = useTexts(store, TEXTS);
  const last = rotations.length - 1;
  const shown = [...new Set([0, 1, 2, ...[0.1, 0.2, 0.4, 0.6, 1].map((share) => Math.round(share * last))])].filter((pair) => pair <= last).sort((a, b) => a - b);
  return (
    <>
      <div class="clocks">
        {shown.map((pair) => {
          const rotation = rotations[pair];
          return rotation && <Clock key={pair} rotation={rotation} position={position} offset={offset} cosineFirst={cosineFirst} title={text.clock.replace("{pair}", String(pair)).replace("{wavelength}", formatNumber(rotation.wavelength, 3))} />;
        })}
      </div>
      <details>
        <summary class="small">{text.all.replace("{count}", String(rotations.length))}</summary>
        <div class="scroll all-pairs" tabIndex={0} role="region" aria-label={text.linear}>
          <table class="numbers">
            <thead><tr><th>{text.pair}</th><th>{text.wavelength}</th><th>{text.angle}</th><th>cos</th><th>sin</th></tr></thead>
            <tbody>
              {rotations.map(({ pair, wavelength, angle, cos, sin }) => (
                <tr key={pair} data-pair={pair}><td>{pair}</td><td>{formatNumber(wavelength, 4)}</td><td>{formatNumber(angle, 4)}</td><td>{formatNumber(cos, 4)}</td><td>{formatNumber(sin, 4)}</td></tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </>
  );
}

function Learned({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const [box, width] = useWidth(640);
  const tensor = usePresentTensors(session, run, ["source_positions"])?.get("source_positions");
  const tokens = tokensOf(run, "source");
  const count = tokens.length;
  const { d_model, max_length } = run.model.manifest.model;
  const found = useMemo(() => tensor && dotsByDistance(tensor.values, count, d_model), [tensor]);
  if (tensor === undefined || found === undefined) return <p class="computing muted" role="status" ref={box}>{terms.computing}</p>;
  const { dots, means } = found;
  return (
    <div ref={box} class="positions-view">
      <section class="part">
        <h3>{text.learned_map}</h3>
        <div class="scroll">
          <Heatmap
            store={store} title={text.learned_map} values={tensor.values} numRows={count} numColumns={d_model} scale={{ kind: "diverging", max: largest(tensor.values) }}
            cellWidth={cellFor(width, d_model)} cellHeight={count > 60 ? 2 : 12} {...(count > 60 ? {} : { rowLabels: positionLabels(tokens).slice(0, count) })}
          />
        </div>
      </section>
      <section class="part">
        <h3>{text.learned_similarity}</h3>
        <p class="small">{text.learned_text.replace("{last}", String(max_length - 1))}</p>
        <div class="scroll"><Heatmap store={store} title={text.learned_similarity} values={dots} numRows={count} numColumns={count} scale={{ kind: "diverging", max: largest(dots) }} width={Math.min(320, width - 88)} rowLabels={tokens} columnLabels={tokens} /></div>
        <LineChart
          title={text.learned_similarity} width={Math.min(width, 720)} xLabel={text.distance} yLabel={text.dot}
          lines={[{ name: text.dot, hue: "source", points: means.map((mean, distance) => [distance, mean] as const) }]}
        />
      </section>
    </div>
  );
}

const SHIFT = 100;

function Rotary({ session, run }: { session: Session; run: Run }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const [box, width] = useWidth(640);
  const kind = store.state.attention === "cross" ? "encoder" : store.state.attention;
  const layer = chosenLayer(run, store.state, stackOf(kind));
  const head = chosenHead(run, store.state);
  const name = attentionName(kind, layer);
  const tensors = usePresentTensors(session, run, [`${name}.query`, `${name}.key`, `${name}.scores`]);
  const tokens = tokensOf(run, kind === "encoder" ? "source" : "target");
  const { p, k } = useChosenPositions(session, tokens);
  const { head_dim } = run.model.manifest.model;
  const labels = positionLabels(tokens);
  const all = frequencies(head_dim);
  const cosines = useMemo(
    () => Float32Array.from({ length: labels.length * all.length }, (_, index) => Math.cos(Math.floor(index / all.length) * (all[index % all.length] ?? 0))),
    [labels.length, head_dim],
  );
  const [query, key, scores] = ["query", "key", "scores"].map((part) => tensors?.get(`${name}.${part}`)?.values.subarray(head * tokens.length * (part === "scores" ? tokens.length : head_dim)));
  let difference = 0;
  if (query && key && scores) {
    const moved = (values: Float32Array, position: number): Float32Array => rotary(values.subarray(position * head_dim, (position + 1) * head_dim), SHIFT);
    const limit = Math.min(tokens.length, 40);
    const keys = Array.from({ length: limit }, (_, position) => moved(key, position));
    for (let i = 0; i < limit; ++i) {
      const q = moved(query, i);
      for (let j = 0; j < limit; ++j) {
        const score = q.reduce((sum, one, index) => sum + one * (keys[j]?.[index] ?? 0), 0);
        difference = Math.max(difference, Math.abs(score - (scores[i * tokens.length + j] ?? 0)));
      }
    }
  }
  return (
    <div ref={box} class="positions-view">
      <section class="part">
        <h3>{text.rotary_map}</h3>
        <p class="small">{text.rotary_rows}</p>
        <div class="scroll">
          <Heatmap
            store={store} title={text.rotary_map} values={cosines} numRows={labels.length} numColumns={all.length} scale={{ kind: "diverging", max: 1 }}
            cellWidth={cellFor(width, all.length)} cellHeight={labels.length > 60 ? 2 : 12} {...(labels.length > 60 ? {} : { rowLabels: labels })}
          />
        </div>
        {query && scores
          ? <p class="small" data-shift-error={difference}>{text.rotary_shift.replace("{layer}", String(layer + 1)).replace("{head}", String(head + 1)).replace("{shift}", String(SHIFT)).replace("{difference}", formatNumber(difference, 2)).replace("{largest}", formatNumber(largest(scores.subarray(0, tokens.length ** 2)), 3))}</p>
          : <p class="computing muted small" role="status">{terms.computing}</p>}
      </section>
      <PositionChoices session={session} tokens={tokens} p={p} k={k} />
      <section class="part">
        <h3>{text.rotary_turn}</h3>
        <Rotations session={session} rotations={shiftRotations(k, head_dim)} position={p} offset={k} cosineFirst />
      </section>
    </div>
  );
}

/** The encoding of one position, which may be negative or far away. */
function encodingOf(position: number, width: number): Float32Array {
  const found = new Float32Array(width);
  for (const [pair, frequency] of frequencies(width).entries()) {
    found[2 * pair] = Math.sin(position * frequency);
    found[2 * pair + 1] = Math.cos(position * frequency);
  }
  return found;
}

function cellFor(width: number, numColumns: number): number {
  const room = Math.min(width, 920) - 92;
  return room / numColumns >= 2 ? Math.floor(room / numColumns) : room / numColumns;
}
