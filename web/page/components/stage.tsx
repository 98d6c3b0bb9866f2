/** One matrix of a computation: its name, its shape and a small heat map. */

import "./stage.css";

import type { Matrix } from "../measures/head_computation.js";
import { typicalLargest } from "../measures/colour_range.js";
import type { Hover, Store } from "../state.js";
import { useStore } from "../state.js";
import { Formula } from "./formula.js";
import { Heatmap, type Scale } from "./heatmap.js";

export interface StageProps {
  store: Store;
  /** Names the stage in `data-stage`. */
  name: string;
  /** The symbol, such as Q, and the formula that gives it. */
  symbol: string;
  formula?: string;
  title: string;
  matrix: Matrix;
  /** The room for the cells, in CSS pixels. */
  width: number;
  height: number;
  scale?: Scale["kind"];
  /** The value with the full colour; default: the largest, without the few that stand out. */
  maximum?: number | undefined;
  /** The tokens of the rows and columns, where they are tokens. */
  rowSide?: Hover["side"] | undefined;
  columnSide?: Hover["side"] | undefined;
  rowLabels?: readonly string[] | undefined;
  columnLabels?: readonly string[] | undefined;
  rowAxis?: string;
  columnAxis?: string;
  isSquare?: boolean;
  /** The largest side of a cell, in CSS pixels. */
  maxCell?: number;
  isMasked?: ((row: number, column: number) => boolean) | undefined;
  selected?: { row: number; column: number } | null;
  /** The row or column that the selected number of another matrix is computed from. */
  operand?: { row?: number; column?: number } | undefined;
  note?: string | undefined;
  /** Equal parts of the columns, such as the heads', with one of them chosen. */
  bands?: { names: readonly string[]; chosen: number; title: string; onSelect: (band: number) => void } | undefined;
  onSelect?: ((row: number, column: number) => void) | undefined;
}

const MAX_CELL = 16;
/** The height from which on the labels of rows do not overlap. */
const MIN_LABELLED = 11;

export function StageMatrix(props: StageProps) {
  const { store, name, symbol, formula, title, matrix, scale = "diverging", rowSide, columnSide, selected, operand, isMasked, onSelect, note } = props;
  const { values, numRows, numColumns } = matrix;
  const lit = useStore(store, () => {
    const { hover } = store;
    if (hover === null) return "";
    return hover.side === rowSide ? `row ${hover.index}` : hover.side === columnSide ? `column ${hover.index}` : "";
  });
  const [axis, place] = lit.split(" ");
  const hovered = axis === "row" ? { row: Number(place) } : axis === "column" ? { column: Number(place) } : null;
  const fitting = (room: number, count: number): number => Math.min(props.maxCell ?? MAX_CELL, room / Math.max(1, count) >= 2 ? Math.floor(room / count) : room / count);
  let [cellWidth, cellHeight] = [fitting(props.width, numColumns), fitting(props.height, numRows)];
  if (props.isSquare) cellWidth = cellHeight = Math.min(cellWidth, cellHeight);
  const hover = (row: number, column: number): void => {
    if (columnSide && axis !== "row" && !rowSide) store.setHover({ side: columnSide, index: column });
    else if (rowSide) store.setHover({ side: rowSide, index: row });
  };
  const { bands } = props;
  const isLabelled = props.rowLabels !== undefined && cellHeight >= MIN_LABELLED;
  return (
    <div class="stage" data-stage={name} data-rows={numRows} data-columns={numColumns}>
      <p class="stage-name">
        <strong>{symbol}</strong>{formula && <span> = <Formula>{formula}</Formula></span>} <span class="muted number">{numRows} × {numColumns}</span>
      </p>
      {bands && (
        <div class={`bands ${isLabelled ? "labelled" : ""}`} role="group" aria-label={bands.title}>
          {bands.names.map((one, band) => (
            <button key={one} type="button" aria-pressed={band === bands.chosen} aria-label={`${bands.title} ${one}`} data-band={band} style={{ width: `${(cellWidth * numColumns) / bands.names.length}px` }} onClick={() => bands.onSelect(band)}>
              {one}
            </button>
          ))}
        </div>
      )}
      <Heatmap
        store={store} title={title} values={values} numRows={numRows} numColumns={numColumns}
        scale={{ kind: scale, max: props.maximum ?? (scale === "sequential" ? 1 : typicalLargest(values)) }} cellWidth={cellWidth} cellHeight={cellHeight}
        {...(isLabelled && props.rowLabels ? { rowLabels: props.rowLabels } : {})}
        {...(props.columnLabels && cellWidth >= 8 ? { columnLabels: props.columnLabels } : {})}
        {...(props.rowAxis ? { rowAxis: props.rowAxis } : {})} {...(props.columnAxis ? { columnAxis: props.columnAxis } : {})}
        {...(isMasked ? { isMasked } : {})} {...(onSelect ? { onSelect } : {})}
        selected={selected ?? null} lit={operand ?? hovered} onHover={hover} onLeave={() => store.setHover(null)}
      />
      {note && <p class="muted small">{note}</p>}
    </div>
  );
}
