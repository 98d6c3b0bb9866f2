/** A matrix whose rows and columns are tokens: pointing at a row lights its token everywhere, and the other way round. */

import "./linked_matrix.css";

import { useState } from "preact/hooks";

import { groupAt } from "../attention_axes.js";
import { type Group } from "../pieces.js";
import type { Hover, Store } from "../state.js";
import { useStore } from "../state.js";
import { Heatmap, type Scale } from "./heatmap.js";
import { useWidth } from "./width.js";

/** Room for the labels of the rows, for those on the right, and for the slanted ones of the columns. */
const [LABELS, END_LABELS, SLANT] = [84, 84, 40];
const MAX_CELL = 28;

export interface Cell {
  row: number;
  column: number;
}

export interface LinkedMatrixProps {
  store: Store;
  title: string;
  values: Float32Array;
  scale: Scale;
  /** The tokens of rows and columns, with their indices among those of `Hover`. */
  queries: readonly Group[];
  keys: readonly Group[];
  querySide: Hover["side"];
  keySide: Hover["side"];
  rowAxis: string;
  columnAxis: string;
  endLabels?: readonly string[];
  endAxis?: string;
  /** Rows from here on are dark. */
  visibleRows: number;
  isMasked?: (row: number, column: number) => boolean;
  selected?: Cell | null;
  onSelect?: (row: number, column: number) => void;
  onPoint?: (cell: Cell | null) => void;
}

export function LinkedMatrix(props: LinkedMatrixProps) {
  const { store, queries, keys, querySide, keySide, visibleRows, onSelect, onPoint } = props;
  const hover = useStore(store, () => store.hover);
  const [pointed, setPointed] = useState<Cell | null>(null);
  const point = (cell: Cell | null): void => {
    setPointed(cell);
    onPoint?.(cell);
    store.setHover(cell && { side: querySide, index: queries[cell.row]?.start ?? 0 });
  };
  const select = (row: number, column: number): void => {
    if (row >= visibleRows) return;
    point(null);
    onSelect?.(row, column);
  };
  const litOf = (side: Hover["side"], all: readonly Group[]): number | undefined => {
    const index = hover?.side === side ? groupAt(all, hover.index) : -1;
    return index < 0 ? undefined : index;
  };
  const [box, width] = useWidth<HTMLDivElement>(480);
  const fitting = Math.floor((width - LABELS - SLANT - (props.endLabels ? END_LABELS : 0)) / Math.max(keys.length, 1));
  const size = Math.max(queries.length, keys.length);
  const smallest = size <= 48 ? 14 : size <= 128 ? 10 : 1; // below 8 pixels there are no labels
  const optional = {
    ...(props.endLabels && { endLabels: props.endLabels }), ...(props.endAxis && { endAxis: props.endAxis }), ...(props.isMasked && { isMasked: props.isMasked }),
    ...(onSelect && { onSelect: select }),
  };
  return (
    <div class="scroll matrix" ref={box}>
      <Heatmap
        {...optional} store={store} title={props.title} values={props.values} numRows={queries.length} numColumns={keys.length} scale={props.scale}
        rowLabels={queries.map(({ text }) => text)} columnLabels={keys.map(({ text }) => text)} rowAxis={props.rowAxis} columnAxis={props.columnAxis}
        visibleRows={visibleRows} cell={Math.max(smallest, Math.min(MAX_CELL, fitting))} selected={props.selected ?? null}
        lit={{ row: pointed?.row ?? litOf(querySide, queries), column: pointed?.column ?? litOf(keySide, keys) }}
        onHover={(row, column) => point(row < visibleRows ? { row, column } : null)} onLeave={() => point(null)}
      />
    </div>
  );
}
