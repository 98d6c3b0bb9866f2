/** A matrix drawn on a canvas: one cell a number, with labels, the pointer and the keyboard on single cells. */

import { useEffect, useMemo, useRef } from "preact/hooks";

import type { Store } from "../state.js";
import { useStore } from "../state.js";
import { formatNumber } from "../text.js";

/** sequential: from 0 (background) to `max` (blue); diverging: from −`max` (orange) over 0 to `max` (blue). */
export interface Scale {
  kind: "sequential" | "diverging";
  max: number;
}

export interface HeatmapProps {
  store: Store;
  /** What the matrix is, for screen readers and exports. */
  title: string;
  values: Float32Array;
  numRows: number;
  numColumns: number;
  scale: Scale;
  /** Labels of rows and columns; without them the cells stand alone. */
  rowLabels?: readonly string[];
  columnLabels?: readonly string[];
  /** Second labels of the rows, on the right. */
  endLabels?: readonly string[];
  /** Names of the axes, such as Query and Key. */
  rowAxis?: string;
  columnAxis?: string;
  endAxis?: string;
  /** Cells that may not be attended to are hatched. */
  isMasked?: (row: number, column: number) => boolean;
  /** Rows from here on are dark: the decoder has not come to them. */
  visibleRows?: number;
  /** Side of a cell in CSS pixels; default: fits `width`. */
  cell?: number;
  /** Width and height of a cell, where it is no square. Below one pixel, cells of the same pixel are averaged. */
  cellWidth?: number;
  cellHeight?: number;
  width?: number;
  selected?: { row: number; column: number } | null;
  lit?: { row?: number | undefined; column?: number | undefined } | null;
  onSelect?: (row: number, column: number) => void;
  onHover?: (row: number, column: number) => void;
  onLeave?: () => void;
}

/** The numbers of a canvas, for exports and tests. */
export interface Cells {
  title: string;
  values: Float32Array;
  numRows: number;
  numColumns: number;
  scale: Scale;
}

export const cellsOfCanvas = new WeakMap<HTMLCanvasElement, Cells>();

interface Palette {
  background: Rgb;
  positive: Rgb;
  negative: Rgb;
  line: string;
}
type Rgb = [number, number, number];

function parseColour(text: string): Rgb {
  const digits = text.trim().replace("#", "");
  return [0, 2, 4].map((start) => parseInt(digits.slice(start, start + 2), 16)) as Rgb;
}

export function palette(element: Element): Palette {
  const style = getComputedStyle(element);
  const colour = (name: string): Rgb => parseColour(style.getPropertyValue(name));
  return { background: colour("--background"), positive: colour("--blue"), negative: colour("--orange"), line: style.getPropertyValue("--line") };
}

/** The colour of a value, between the background and a hue. */
export function colourOf(value: number, scale: Scale, colours: Palette): Rgb {
  const share = Math.min(1, Math.abs(value) / (scale.max || 1));
  const hue = value < 0 ? colours.negative : colours.positive;
  return hue.map((channel, index) => Math.round((colours.background[index] ?? 0) * (1 - share) + channel * share)) as Rgb;
}

/** The largest finite absolute value. */
export function largest(values: Float32Array): number {
  let max = 0;
  for (const value of values) if (Number.isFinite(value) && Math.abs(value) > max) max = Math.abs(value);
  return max;
}

export function Heatmap(props: HeatmapProps) {
  const { store, title, values, numRows, numColumns, scale, rowLabels, columnLabels, endLabels, rowAxis, columnAxis, endAxis, selected, lit, visibleRows } = props;
  const theme = useStore(store, () => store.state.theme);
  const canvas = useRef<HTMLCanvasElement>(null);
  const cell = props.cell ?? Math.max(1, Math.min(28, Math.floor((props.width ?? 320) / Math.max(numRows, numColumns))));
  const { cellWidth = cell, cellHeight = cell } = props;
  const image = useMemo(() => ({ key: "", canvas: new OffscreenCanvas(Math.max(1, numColumns), Math.max(1, numRows)) }), [values, numRows, numColumns]);

  useEffect(() => {
    const element = canvas.current;
    if (element === null) return;
    cellsOfCanvas.set(element, { title, values, numRows, numColumns, scale });
    const draw = (): void => drawCells(element, props, image, cellWidth, cellHeight);
    draw();
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    return () => dark.removeEventListener("change", draw);
  });

  const cellAt = (event: MouseEvent): [number, number] => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const at = (offset: number, size: number, count: number): number => Math.max(0, Math.min(count - 1, Math.floor((offset / size) * count)));
    return [at(event.clientY - box.top, box.height, numRows), at(event.clientX - box.left, box.width, numColumns)];
  };
  const move = (event: KeyboardEvent): void => {
    const steps: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (step === undefined || props.onSelect === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const row = Math.max(0, Math.min(numRows - 1, (selected?.row ?? 0) + step[0]));
    props.onSelect(row, Math.max(0, Math.min(numColumns - 1, (selected?.column ?? 0) + step[1])));
  };
  const named = selected ? `; ${rowLabels?.[selected.row] ?? selected.row}, ${columnLabels?.[selected.column] ?? selected.column}: ${formatNumber(values[selected.row * numColumns + selected.column] ?? 0, 4)}` : "";
  return (
    <figure class="heatmap" data-theme-of-page={theme}>
      {columnLabels && (
        <svg class="column-labels" width={cellWidth * numColumns} height={64} font-size={Math.min(12, cellWidth)} style={{ gridColumn: 2 }} aria-hidden="true">
          {columnAxis && <text x={0} y={10} font-size={12} class="axis">{columnAxis} →</text>}
          {cellWidth >= 8 && columnLabels.map((label, index) => (
            <text key={index} class={lit?.column === index ? "lit" : ""} transform={`translate(${cellWidth * (index + 0.5) + 4}, 60) rotate(-60)`}>{shorten(label)}</text>
          ))}
        </svg>
      )}
      {rowLabels && rowAxis && columnLabels && <Corner column={1} name={rowAxis} />}
      {endLabels && endAxis && columnLabels && <Corner column={3} name={endAxis} />}
      {rowLabels && (
        <svg class="row-labels" width={80} height={cellHeight * numRows} font-size={Math.min(12, cellHeight)} style={{ gridColumn: 1, gridRow: columnLabels ? 2 : 1 }} aria-hidden="true">
          {cellHeight >= 8 && rowLabels.map((label, index) => (
            <text key={index} class={lit?.row === index ? "lit" : ""} x={76} y={cellHeight * (index + 0.5) + 4} text-anchor="end">{shorten(label)}</text>
          ))}
        </svg>
      )}
      <canvas
        ref={canvas}
        style={{ gridColumn: 2, width: `${cellWidth * numColumns}px`, height: `${cellHeight * numRows}px` }}
        role="img"
        aria-label={`${title}${named}`}
        data-visible-rows={visibleRows ?? numRows}
        tabIndex={props.onSelect ? 0 : -1}
        onClick={(event) => props.onSelect?.(...cellAt(event))}
        onMouseMove={(event) => props.onHover?.(...cellAt(event))}
        onMouseLeave={() => props.onLeave?.()}
        onKeyDown={move}
      />
      {endLabels && cellHeight >= 8 && (
        <svg class="end-labels" width={80} height={cellHeight * numRows} font-size={Math.min(12, cellHeight)} style={{ gridColumn: 3, gridRow: columnLabels ? 2 : 1 }} aria-hidden="true">
          {endLabels.map((label, index) => (
            <text key={index} class={lit?.row === index ? "lit" : ""} x={4} y={cellHeight * (index + 0.5) + 4}>{shorten(label)}</text>
          ))}
        </svg>
      )}
    </figure>
  );
}

/** The name of an axis of rows, above their labels. */
function Corner({ column, name }: { column: 1 | 3; name: string }) {
  return (
    <svg class="corner" width={80} height={64} style={{ gridColumn: column, gridRow: 1 }} aria-hidden="true">
      <text x={column === 1 ? 76 : 4} y={60} text-anchor={column === 1 ? "end" : "start"} class="axis">{name} ↓</text>
    </svg>
  );
}

export function shorten(label: string, length = 10): string {
  return [...label].length > length ? `${[...label].slice(0, length - 1).join("")}…` : label;
}

/** The colours of the cells, one pixel each, kept until something that they depend on changes. */
interface Image {
  key: string;
  canvas: OffscreenCanvas;
}

function paint(image: Image, { values, numRows, numColumns, scale, isMasked, visibleRows = numRows }: HeatmapProps, colours: Palette): void {
  const pixels = new ImageData(Math.max(1, numColumns), Math.max(1, numRows));
  for (let row = 0; row < numRows; ++row) {
    for (let column = 0; column < numColumns; ++column) {
      const index = row * numColumns + column;
      const value = row >= visibleRows || isMasked?.(row, column) ? 0 : (values[index] ?? 0);
      const hue = value < 0 ? colours.negative : colours.positive;
      const share = Number.isFinite(value) ? Math.min(1, Math.abs(value) / (scale.max || 1)) : 0;
      for (let channel = 0; channel < 3; ++channel) {
        pixels.data[4 * index + channel] = Math.round((colours.background[channel] ?? 0) * (1 - share) + (hue[channel] ?? 0) * share);
      }
      pixels.data[4 * index + 3] = 255;
    }
  }
  image.canvas.getContext("2d")?.putImageData(pixels, 0, 0);
}

function drawCells(canvas: HTMLCanvasElement, props: HeatmapProps, image: Image, cellWidth: number, cellHeight: number): void {
  const { numRows, numColumns, scale, isMasked, visibleRows = numRows, selected, lit } = props;
  const ratio = Math.max(1, Math.round(devicePixelRatio));
  canvas.width = Math.round(cellWidth * numColumns * ratio);
  canvas.height = Math.round(cellHeight * numRows * ratio);
  const context = canvas.getContext("2d");
  if (context === null) return;
  const colours = palette(canvas);
  const key = JSON.stringify([colours, scale, visibleRows, isMasked !== undefined]);
  if (image.key !== key) paint(image, props, colours);
  image.key = key;
  const [width, height] = [cellWidth * ratio, cellHeight * ratio];
  context.imageSmoothingEnabled = Math.min(width, height) < 1;
  context.drawImage(image.canvas, 0, 0, canvas.width, canvas.height);
  context.strokeStyle = colours.line;
  context.lineWidth = ratio;
  if (isMasked && Math.min(cellWidth, cellHeight) >= 6) {
    context.beginPath();
    for (let row = 0; row < Math.min(numRows, visibleRows); ++row) {
      for (let column = 0; column < numColumns; ++column) {
        if (!isMasked(row, column)) continue;
        context.moveTo(column * width, (row + 1) * height);
        context.lineTo((column + 1) * width, row * height);
      }
    }
    context.stroke();
  }
  context.strokeRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = colours.line;
  if (visibleRows < numRows) context.fillRect(0, visibleRows * height, canvas.width, (numRows - visibleRows) * height);
  const text = getComputedStyle(canvas).getPropertyValue("--text");
  context.strokeStyle = text;
  if (lit?.row !== undefined) context.strokeRect(0, lit.row * height, canvas.width, height);
  if (lit?.column !== undefined) context.strokeRect(lit.column * width, 0, width, canvas.height);
  if (selected) {
    context.lineWidth = 2 * ratio;
    const [w, h] = [Math.max(width, 4 * ratio), Math.max(height, 4 * ratio)];
    context.strokeRect((selected.column + 0.5) * width - w / 2, (selected.row + 0.5) * height - h / 2, w, h);
  }
}
