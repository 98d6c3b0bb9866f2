/** The tree of a beam search: the continuations of each step, those that stayed in the beam, and the finished translations. */

import "./beam.css";

import { useEffect, useRef, useState } from "preact/hooks";

import { lengthPenalty } from "../../engine/src/engine.js";
import type { BeamTree } from "../../engine/src/index.js";
import { columnsOf, type Column, pathOf, type Placed } from "../measures/beam_columns.js";
import { labels } from "../pieces.js";
import { type Run, type Session, useSession } from "../session.js";
import { formatNumber, TERMS, texts, useTexts } from "../text.js";
import { penaltyFormula, tokenLabel } from "./decoding.js";

const TEXTS = texts({
  en: {
    lead: "Beam search keeps several hypotheses and continues each of them, so that a token with a low probability can still lead to a better translation (section 6.1).",
    size: "Beam size", all: "Show all pruned continuations", unchanged: "The search runs the model without your changes.",
    missing: "The tree is recorded by the engine in the page; it does not run this model.",
    tree: "Tree of the search", legend: "Numbers are log-probabilities of the token. A token opens its step in the decoding.",
    kept: "kept in the beam", finished: "finished", pruned: "pruned", best: "highest score",
    pool: "Finished hypotheses", pool_note: "Longer translations have lower sums; the length penalty makes them comparable, and the highest score wins.", pool_empty: "No hypothesis ended within the length limit.",
    int8: "The search multiplies in 8-bit integers, as translation does; the other views compute in float32. So the sums differ a little.",
    explain: "Open this translation in the other views", text: "Translation", sum: "Sum of log-probabilities", length: "Tokens", penalty: "Length penalty", score: "Score",
    open: (token: string, sum: string) => `${token}, sum ${sum}: open this step`, hidden: (count: number) => `+${count}`,
  },
  zh: {
    lead: "束搜索同时保留多个候选译文并逐个续写，因此当前概率较低的词元仍有机会得到更好的译文（第 6.1 节）。",
    size: "束宽", all: "显示全部被剪掉的分支", unchanged: "搜索使用未经干预的模型。",
    missing: "搜索树由页面内的引擎记录，而此模型不由它运行。",
    tree: "搜索树", legend: "数字是该词元的对数概率。点击词元可在解码视图中打开这一步。",
    kept: "留在束中", finished: "已结束", pruned: "被剪掉", best: "得分最高",
    pool: "已结束的候选译文", pool_note: "译文越长，对数概率之和越小；长度惩罚使它们可以比较，得分最高者胜出。", pool_empty: "没有候选译文在长度上限内结束。",
    int8: "搜索与实际翻译一样用 8 位整数做矩阵乘法，其他视图用 float32 计算，因此对数概率之和略有差别。",
    explain: "在其他视图中查看这个译文", text: "译文", sum: "对数概率之和", length: "词元数", penalty: "长度惩罚", score: "得分",
    open: (token: string, sum: string) => `${token}，累计 ${sum}：打开这一步`, hidden: (count: number) => `+${count}`,
  },
});

const SIZES = [1, 2, 3, 4, 5, 6, 7, 8];
const [SIZE, ALL] = ["beam.size", "beam.all"] as const;

export function BeamView({ session }: { session: Session }) {
  useSession(session);
  const { store, base: run } = session;
  const text = useTexts(store, TEXTS);
  const terms = useTexts(store, TERMS);
  const asked = Number(store.state.options[SIZE]);
  const size = SIZES.includes(asked) ? asked : Math.min(8, run?.model.manifest.decoding.beam_size ?? 4);
  const tree = useTree(session, run, size);
  const open = (index: number): void => {
    if (session.isRecorded) return;
    const prefix = tree === null ? [] : pathOf(tree.nodes, index).map((node) => tree.nodes[node]?.token ?? 0);
    store.update({ view: "decoding", run: "base", prefix, step: prefix.length - 1 });
  };
  return (
    <>
      <p class="lead">{text.lead}</p>
      {run !== null && run.model.beamTree === undefined && <p class="muted">{text.missing}</p>}
      {run?.model.beamTree !== undefined && (
        <div class="controls">
          <label>
            {text.size}
            <select value={tree?.beam_size ?? size} disabled={session.isRecorded} onChange={(event) => store.setOption(SIZE, event.currentTarget.value)}>
              {SIZES.map((one) => <option key={one} value={one}>{one}</option>)}
            </select>
          </label>
          <label>
            <input type="checkbox" checked={store.state.options[ALL] === "1"} onChange={(event) => store.setOption(ALL, event.currentTarget.checked ? "1" : undefined)} />
            {text.all}
          </label>
        </div>
      )}
      {store.state.interventions.length > 0 && <p class="muted small">{text.unchanged}</p>}
      {run !== null && tree === null && run.model.beamTree !== undefined && <p class="muted small" role="status">{terms.computing}</p>}
      {run !== null && tree !== null && (
        <>
          <Tree session={session} tree={tree} open={open} />
          <Pool session={session} tree={tree} open={open} />
          {run.model.shape.int8 && <p class="muted small">{text.int8}</p>}
        </>
      )}
    </>
  );
}

/** The tree for the shown sentence and a beam size; null while it is computed. */
function useTree(session: Session, run: Run | null, size: number): BeamTree | null {
  const [found, setFound] = useState<{ key: string; tree: BeamTree } | null>(null);
  const key = `${run?.key ?? ""} ${size}`;
  useEffect(() => {
    if (run === null || run.model.beamTree === undefined) return;
    const { prefix } = session.store.state;
    const { eos_id } = run.model.manifest.special;
    const options = { source: run.source, beamSize: size, prefix: prefix.filter((token) => token !== eos_id) };
    run.model.beamTree(run.text, options).then((tree) => setFound({ key, tree }), (error: unknown) => session.fail(error));
  }, [key]);
  return found?.key === key ? found.tree : null;
}

const NUM_PRUNED = 2;
const [COLUMN, ROW, NODE, EDGE] = [136, 32, 80, 56];
/** Columns that are drawn outside the visible part of the box. */
const MARGIN = 3;

interface TreeProps {
  session: Session;
  tree: BeamTree;
  /** Shows a node's step in the decoding, with the tokens up to it fixed. */
  open: (index: number) => void;
}

function Tree({ session, tree, open }: TreeProps) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const [range, setRange] = useState({ first: 0, last: 16 });
  const [lit, setLit] = useState(tree.best[0] ?? 0);
  const box = useRef<HTMLDivElement>(null);
  const columns = columnsOf(tree.nodes, store.state.options[ALL] === "1" ? Infinity : NUM_PRUNED);
  const numRows = Math.max(1, ...columns.map(({ nodes, hidden }) => nodes.length + (hidden > 0 ? 1 : 0)));
  const best = new Set(tree.best.slice(0, 1).flatMap((node) => pathOf(tree.nodes, node)));
  const path = new Set(pathOf(tree.nodes, lit));
  const follow = (): void => {
    const element = box.current;
    if (element === null) return;
    const first = Math.floor(element.scrollLeft / COLUMN) - MARGIN;
    setRange({ first, last: first + Math.ceil(element.clientWidth / COLUMN) + 2 * MARGIN });
  };
  useEffect(follow, [tree]);
  const move = (event: KeyboardEvent): void => {
    const next = neighbour(columns, lit, event.key);
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    setLit(next);
    box.current?.querySelector<SVGGElement>(`[data-node="${next}"]`)?.focus();
  };
  const start = columns[0]?.step ?? 0;
  const height = numRows * ROW + 8;
  const shown = columns.filter((_, index) => index >= range.first && index <= range.last);
  return (
    <section aria-labelledby="tree-title">
      <h3 id="tree-title">{text.tree}</h3>
      <p class="muted small">{text.legend}</p>
      <ul class="legend small">
        {(["best", "kept", "finished", "pruned"] as const).map((name) => <li key={name} class={name}><span aria-hidden="true" />{text[name]}</li>)}
      </ul>
      <div class="scroll tree" ref={box} onScroll={follow} onKeyDown={move}>
        <svg width={columns.length * COLUMN + 8} height={height} role="group" aria-label={text.tree}>
          {shown.map((column) => (
            <g key={column.step} transform={`translate(${(column.step - start) * COLUMN}, 0)`}>
              {column.nodes.map((placed) => (
                <Edge key={placed.index} placed={placed} height={height} isBest={best.has(placed.index)} isLit={path.has(placed.index)} />
              ))}
              {column.nodes.map((placed) => (
                <Node
                  key={placed.index} placed={placed} height={height} isBest={best.has(placed.index)} isLit={path.has(placed.index)} isFocus={placed.index === lit}
                  label={text.open(tokenLabel(placed.node.piece).text, formatNumber(placed.node.total))} onOpen={() => open(placed.index)} onLight={() => setLit(placed.index)}
                />
              ))}
              {column.hidden > 0 && <text class="more" x={EDGE + NODE / 2} y={middle({ row: column.nodes.length, of: column.nodes.length + 1 }, height) + 4} text-anchor="middle">{text.hidden(column.hidden)}</text>}
            </g>
          ))}
        </svg>
      </div>
    </section>
  );
}

/** The y of a row; columns are centred. */
function middle({ row, of }: { row: number; of: number }, height: number): number {
  return height / 2 + (row - (of - 1) / 2) * ROW;
}

interface NodeProps {
  placed: Placed;
  height: number;
  isBest: boolean;
  isLit: boolean;
}

function stateClass({ placed, isBest, isLit }: NodeProps): string {
  return `${placed.node.state} ${isBest ? "best" : ""} ${isLit ? "lit" : ""}`;
}

function Edge(props: NodeProps) {
  const { placed, height } = props;
  const y = middle(placed, height);
  const from = placed.parent === null ? y : middle(placed.parent, height);
  const x = placed.parent === null ? 8 : NODE + EDGE - COLUMN;
  return (
    <g class={`edge ${stateClass(props)}`}>
      <path d={`M${x} ${from}C${EDGE / 2} ${from} ${EDGE / 2 - 16} ${y} ${EDGE} ${y}`} />
      <text x={EDGE - 4} y={y - 5} text-anchor="end" data-log-prob={placed.node.log_prob}>{formatNumber(placed.node.log_prob, 2)}</text>
    </g>
  );
}

function Node(props: NodeProps & { isFocus: boolean; label: string; onOpen: () => void; onLight: () => void }) {
  const { placed, height, isFocus, label, onOpen, onLight } = props;
  const y = middle(placed, height);
  const { text } = tokenLabel(placed.node.piece);
  return (
    <g
      class={`node ${stateClass(props)}`} role="button" tabindex={isFocus ? 0 : -1} aria-label={label} data-node={placed.index} data-token={placed.node.token}
      data-total={placed.node.total} data-state={placed.node.state} onClick={onOpen} onMouseEnter={onLight} onFocus={onLight}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        onOpen();
      }}
    >
      <title>{label}</title>
      <rect x={EDGE} y={y - 12} width={NODE} height={24} rx={4} />
      <text x={EDGE + NODE / 2} y={y + 4} text-anchor="middle">{[...text].length > 9 ? `${[...text].slice(0, 8).join("")}…` : text}</text>
    </g>
  );
}

/** The node that an arrow key leads to. */
function neighbour(columns: readonly Column[], index: number, key: string): number | undefined {
  const at = columns.findIndex(({ nodes }) => nodes.some((placed) => placed.index === index));
  const column = columns[at];
  const row = column?.nodes.findIndex((placed) => placed.index === index) ?? -1;
  if (key === "ArrowLeft") return column?.nodes[row]?.parent?.index;
  if (key === "ArrowRight") return columns[at + 1]?.nodes.find(({ parent }) => parent?.index === index)?.index;
  if (key === "ArrowUp") return column?.nodes[row - 1]?.index;
  return key === "ArrowDown" ? column?.nodes[row + 1]?.index : undefined;
}

function Pool({ session, tree, open }: TreeProps) {
  const text = useTexts(session.store, TEXTS);
  const finished = [...tree.nodes.entries()].filter(([, { state }]) => state === "finished");
  finished.sort(([, one], [, other]) => (other.score ?? 0) - (one.score ?? 0));
  const { length_penalty: kind, length_penalty_alpha: alpha } = tree;
  return (
    <section aria-labelledby="pool-title">
      <h3 id="pool-title">{text.pool}</h3>
      <p class="muted small">{finished.length > 0 ? text.pool_note : text.pool_empty}</p>
      {finished.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-labelledby="pool-title">
          <table class="numbers pool">
            <thead>
              <tr>{[text.text, text.sum, text.length, text.penalty, text.score].map((name) => <th key={name} scope="col">{name}</th>)}</tr>
            </thead>
            <tbody>
              {finished.map(([index, node]) => {
                const length = node.step + 1;
                const penalty = lengthPenalty(length, { length_penalty: kind, length_penalty_alpha: alpha });
                const path = pathOf(tree.nodes, index);
                const isBest = index === tree.best[0];
                return (
                  <tr key={index} class={isBest ? "best" : ""} data-score={node.score ?? ""} data-log-prob={node.total}>
                    <th scope="row"><button type="button" title={text.explain} onClick={() => open(index)}>{textOf(path.slice(0, -1).map((one) => tree.nodes[one]?.piece ?? ""))}</button></th>
                    <td>{formatNumber(node.total, 4)}</td>
                    <td>{length}</td>
                    <td>{penaltyFormula(length, kind, alpha)} {formatNumber(penalty, 4)}</td>
                    <td>{formatNumber(node.total, 4)} ÷ {formatNumber(penalty, 4)} = <strong>{formatNumber(node.score ?? 0, 4)}</strong></td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** Subwords as one text. */
function textOf(pieces: readonly string[]): string {
  return labels(pieces).map(({ text, kind }) => (text === "␣" ? " " : kind === "word" ? ` ${text}` : text === "‥" ? "" : text)).join("").trim();
}
