/** Attention as curves from the tokens that attend to those that they attend to; the width of a curve is its weight. */

import "./arcs.css";

import { useMemo, useState } from "preact/hooks";

import { type Group } from "../pieces.js";
import type { Hover, Store } from "../state.js";
import { useStore } from "../state.js";
import { formatPercent, texts, useTexts } from "../text.js";
import { shorten } from "./heatmap.js";

const TEXTS = texts({
  en: {
    attends: (token: string, keys: string) => `${token} attends to ${keys}`, attended: (token: string) => `${token}, attended to`,
    hidden: (count: number, all: number, share: string, threshold: string) =>
      `${count} of ${all} weights are below ${threshold} and not drawn; together they are ${share} of the attention.`,
    many: (count: number) => `Only the ${count} largest are drawn.`,
  },
  zh: {
    attends: (token: string, keys: string) => `${token} 关注 ${keys}`, attended: (token: string) => `${token}，被关注`,
    hidden: (count: number, all: number, share: string, threshold: string) =>
      `共 ${all} 个权重，其中 ${count} 个低于 ${threshold}，没有画出，合计占注意力的 ${share}。`,
    many: (count: number) => `只画出最大的 ${count} 个。`,
  },
});

const MAX_ARCS = 1500;
const [WIDTH, LEFT, RIGHT] = [384, 156, 256];

export interface ArcsProps {
  store: Store;
  title: string;
  queries: readonly Group[];
  keys: readonly Group[];
  querySide: Hover["side"];
  keySide: Hover["side"];
  /** What the rows predict, beside their names. */
  predicted: readonly string[] | null;
  queryAxis: string;
  keyAxis: string;
  weights: Float32Array;
  /** Weights below are not drawn. */
  threshold: number;
  /** Rows from here on are dark. */
  visibleRows: number;
  selected: { row: number; column: number } | null;
  onSelect: (row: number, column: number) => void;
}

interface Arc {
  row: number;
  column: number;
  weight: number;
}

/** The weights that are drawn, largest last, and how many are not. */
export function arcsAbove(weights: Float32Array, numKeys: number, numRows: number, threshold: number): { arcs: Arc[]; below: number; belowShare: number; cut: number } {
  const arcs: Arc[] = [];
  let [below, belowSum, sum] = [0, 0, 0];
  for (let index = 0; index < numRows * numKeys; ++index) {
    const weight = weights[index] ?? 0;
    if (weight === 0) continue;
    sum += weight;
    if (weight >= threshold) arcs.push({ row: Math.floor(index / numKeys), column: index % numKeys, weight });
    else {
      below += 1;
      belowSum += weight;
    }
  }
  arcs.sort((first, second) => first.weight - second.weight);
  const cut = Math.max(0, arcs.length - MAX_ARCS);
  return { arcs: arcs.slice(cut), below, belowShare: sum > 0 ? belowSum / sum : 0, cut };
}

export function Arcs(props: ArcsProps) {
  const { store, title, queries, keys, predicted, weights, threshold, visibleRows, selected, onSelect } = props;
  const text = useTexts(store, TEXTS);
  const hover = useStore(store, () => store.hover);
  const size = Math.max(queries.length, keys.length);
  const pitch = size <= 48 ? 24 : size <= 160 ? 16 : 12;
  const found = useMemo(() => arcsAbove(weights, keys.length, visibleRows, threshold), [weights, keys.length, visibleRows, threshold]);
  const paths = useMemo(() => found.arcs.map((arc) => <Curve key={`${arc.row} ${arc.column}`} arc={arc} pitch={pitch} />), [found, pitch]);

  const isLit = (group: Group, side: Hover["side"]): boolean => hover?.side === side && hover.index >= group.start && hover.index < group.end;
  const litRows = queries.map((group) => isLit(group, props.querySide));
  const litColumns = keys.map((group) => isLit(group, props.keySide));
  const hasLit = litRows.includes(true) || litColumns.includes(true);
  const chosen = hasLit || selected === null ? null : selected.row;
  const lit = hasLit || chosen !== null
    ? found.arcs.filter(({ row, column }) => (hasLit ? (litRows[row] ?? false) || (litColumns[column] ?? false) : row === chosen))
    : [];

  const best = (row: number): string =>
    found.arcs.filter((arc) => arc.row === row).slice(-3).reverse().map(({ column, weight }) => `${keys[column]?.text} ${formatPercent(weight)}`).join(", ");
  return (
    <figure class="arcs" data-threshold={threshold} data-hidden={found.below}>
      <div class="scroll arcs-scroll" tabIndex={size > 24 ? 0 : -1}>
        <svg viewBox={`0 0 ${WIDTH} ${28 + size * pitch}`} width={WIDTH} role="group" aria-label={title} class={hasLit || chosen !== null ? "has-lit" : ""}>
          <text class="axis" x={LEFT - 8} y={14} text-anchor="end">{props.queryAxis}</text>
          <text class="axis" x={RIGHT + 8} y={14}>{props.keyAxis}</text>
          <g class="curves">{paths}</g>
          <g class="curves lit">{lit.map((arc) => <Curve key={`${arc.row} ${arc.column}`} arc={arc} pitch={pitch} />)}</g>
          <Column
            store={store} side={props.querySide} groups={queries} x={LEFT - 8} anchor="end" pitch={pitch} lit={litRows} notes={predicted}
            visible={visibleRows} name={(row, shown) => text.attends(shown, best(row))}
            onSelect={(row) => onSelect(row, selected?.column ?? 0)} chosen={selected?.row ?? -1}
          />
          <Column
            store={store} side={props.keySide} groups={keys} x={RIGHT + 8} anchor="start" pitch={pitch} lit={litColumns} notes={null}
            visible={keys.length} name={(_column, shown) => text.attended(shown)}
            onSelect={(column) => onSelect(selected?.row ?? Math.max(0, visibleRows - 1), column)} chosen={selected?.column ?? -1}
          />
        </svg>
      </div>
      <figcaption class="small muted">
        {found.below > 0 && text.hidden(found.below, found.below + found.arcs.length + found.cut, formatPercent(found.belowShare), formatPercent(threshold))}
        {found.cut > 0 && ` ${text.many(MAX_ARCS)}`}
      </figcaption>
    </figure>
  );
}

function Curve({ arc: { row, column, weight }, pitch }: { arc: Arc; pitch: number }) {
  const [from, to, middle] = [28 + (row + 0.5) * pitch, 28 + (column + 0.5) * pitch, (LEFT + RIGHT) / 2];
  return (
    <path
      d={`M${LEFT} ${from}C${middle} ${from} ${middle} ${to} ${RIGHT} ${to}`} stroke-width={(0.5 + weight * Math.min(6, pitch / 3)).toFixed(2)}
      stroke-opacity={(0.15 + 0.85 * weight).toFixed(3)} data-row={row} data-column={column} data-weight={weight}
    />
  );
}

interface ColumnProps {
  store: Store;
  side: Hover["side"];
  groups: readonly Group[];
  x: number;
  anchor: "start" | "end";
  pitch: number;
  lit: readonly boolean[];
  notes: readonly string[] | null;
  visible: number;
  chosen: number;
  /** The name of a token for screen readers, which begins with what is shown. */
  name: (index: number, shown: string) => string;
  onSelect: (index: number) => void;
}

/** The tokens of one side: one stop for the tab key, with the arrow keys inside. */
function Column({ store, side, groups, x, anchor, pitch, lit, notes, visible, chosen, name, onSelect }: ColumnProps) {
  const [current, setCurrent] = useState(0);
  const stop = Math.min(current, Math.max(0, Math.min(visible, groups.length) - 1));
  const point = (index: number): void => store.setHover({ side, index: groups[index]?.start ?? 0 });
  const move = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (event.key === "Enter" || event.key === " ") onSelect(stop);
    else if (step === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const next = Math.max(0, Math.min(Math.min(visible, groups.length) - 1, stop + step));
    setCurrent(next);
    (event.currentTarget as Element).querySelectorAll<SVGElement>("[role=button]")[next]?.focus();
  };
  return (
    <g onKeyDown={move} onMouseLeave={() => store.setHover(null)} font-size={pitch >= 24 ? 14 : pitch - 2}>
      {groups.map(({ start, text, kind }, index) => {
        const note = notes?.[index] ? ` → ${shorten(notes[index] ?? "", 10)}` : "";
        const word = shorten(text, 14);
        const classes = ["token-text", side, kind, lit[index] ? "lit" : "", index >= visible ? "dark" : "", index === chosen ? "chosen" : ""];
        return (
          <g
            key={start} class={classes.filter(Boolean).join(" ")} role="button" aria-label={name(index, word + note)} aria-pressed={index === chosen}
            aria-disabled={index >= visible} tabindex={index === stop ? 0 : -1} data-index={start}
            onMouseEnter={() => point(index)} onFocus={() => { setCurrent(index); point(index); }} onClick={() => { if (index < visible) onSelect(index); }}
          >
            <rect x={anchor === "end" ? 0 : x - 8} y={28 + index * pitch} width={anchor === "end" ? LEFT : WIDTH - RIGHT} height={pitch} />
            <text x={x} y={28 + (index + 0.5) * pitch + pitch / 5} text-anchor={anchor}>
              {word}
              {note && <tspan class="note">{note}</tspan>}
            </text>
          </g>
        );
      })}
    </g>
  );
}
