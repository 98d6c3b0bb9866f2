/** A matrix whose rows and columns are tokens: pointing at a row lights its token everywhere, and the other way round. */

import { useState } from "preact/hooks";

import { groupAt } from "../attention_axes.js";
import { type Group } from "../pieces.js";
import type { Hover, Store } from "../state.js";
import { useStore } from "../state.js";
import { Heatmap, type Scale } from "./heatmap.js";

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
  const litOf = (side: Hover["side"], all: readonly Group[]): number | undefined => {
    const index = hover?.side === side ? groupAt(all, hover.index) : -1;
    return index < 0 ? undefined : index;
  };
  const size = Math.max(queries.length, keys.length, 1);
  const optional = {
    ...(props.endLabels && { endLabels: props.endLabels }), ...(props.endAxis && { endAxis: props.endAxis }), ...(props.isMasked && { isMasked: props.isMasked }),
    ...(onSelect && { onSelect: (row: number, column: number) => { if (row < visibleRows) onSelect(row, column); } }),
  };
  return (
    <div class="scroll matrix">
      <Heatmap
        {...optional} store={store} title={props.title} values={props.values} numRows={queries.length} numColumns={keys.length} scale={props.scale}
        rowLabels={queries.map(({ text }) => text)} columnLabels={keys.map(({ text }) => text)} rowAxis={props.rowAxis} columnAxis={props.columnAxis}
        visibleRows={visibleRows} cell={Math.max(2, Math.min(28, Math.floor((size > 24 ? 640 : 480) / size)))} selected={props.selected ?? null}
        lit={{ row: pointed?.row ?? litOf(querySide, queries), column: pointed?.column ?? litOf(keySide, keys) }}
        onHover={(row, column) => point(row < visibleRows ? { row, column } : null)} onLeave={() => point(null)}
      />
    </div>
  );
}
