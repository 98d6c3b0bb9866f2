/** The wall of heads: one small picture of the weights for every layer and head, with what the head does in a word. */

import "./thumbnails.css";

import { useEffect, useRef } from "preact/hooks";

import { fullColour, type HeadSummary } from "../measures/heads.js";
import type { Store } from "../state.js";
import { useStore } from "../state.js";
import { colourOf, palette } from "./heatmap.js";

const SIDE = 64;

export interface Thumbnail {
  layer: number;
  /** -1: the mean over the heads of the layer. */
  head: number;
  /** Of shape (numRows, numColumns). */
  values: Float32Array;
  numRows: number;
  numColumns: number;
  summary: HeadSummary;
  /** What the head does, and the number behind that, below its picture. */
  label: string;
  number: string;
  name: string;
}

export interface ThumbnailsProps {
  store: Store;
  title: string;
  /** One row a layer. */
  layers: { name: string; heads: Thumbnail[] | null }[];
  columns: readonly string[];
  chosen: { layer: number; head: number };
  onSelect: (layer: number, head: number) => void;
}

/** A canvas with the largest weight of each block, so that single large weights stay visible in long sentences. */
function Picture({ store, values, numRows, numColumns }: { store: Store } & Pick<Thumbnail, "values" | "numRows" | "numColumns">) {
  const theme = useStore(store, () => store.state.theme);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [height, width] = [Math.min(SIDE, numRows), Math.min(SIDE, numColumns)];
  useEffect(() => {
    const draw = (): void => {
      const context = canvas.current?.getContext("2d");
      if (!context || canvas.current === null) return;
      const colours = palette(canvas.current);
      const largest = new Float32Array(height * width);
      for (let row = 0; row < numRows; ++row) {
        for (let column = 0; column < numColumns; ++column) {
          const at = Math.floor((row * height) / numRows) * width + Math.floor((column * width) / numColumns);
          const value = values[row * numColumns + column] ?? 0;
          if (value > (largest[at] ?? 0)) largest[at] = value;
        }
      }
      const image = new ImageData(width, height);
      const max = fullColour(values, numRows, numColumns);
      for (const [at, value] of largest.entries()) image.data.set([...colourOf(value, { kind: "sequential", max }, colours), 255], 4 * at);
      context.putImageData(image, 0, 0);
    };
    const frame = requestAnimationFrame(draw);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    return () => {
      cancelAnimationFrame(frame);
      dark.removeEventListener("change", draw);
    };
  }, [values, numRows, numColumns, height, width, theme]);
  return <canvas ref={canvas} width={width} height={height} aria-hidden="true" />;
}

export function Thumbnails({ store, title, layers, columns, chosen, onSelect }: ThumbnailsProps) {
  return (
    <div class="scroll thumbnails" role="group" aria-label={title}>
      <table>
        <thead>
          <tr><td />{columns.map((name) => <th key={name} scope="col">{name}</th>)}</tr>
        </thead>
        <tbody>
          {layers.map(({ name, heads }, layer) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {heads === null && <td colSpan={columns.length} class="muted">…</td>}
              {heads?.map(({ head, summary, label, number, values, numRows, numColumns, name: headName }) => (
                <td key={head}>
                  <button
                    type="button" class="thumbnail" aria-pressed={chosen.layer === layer && chosen.head === head} aria-label={`${headName}: ${label} ${number}`}
                    title={`${headName}: ${label} ${number}`} data-layer={layer} data-head={head} data-label={summary.label} data-entropy={summary.entropy}
                    data-distance={summary.distance} data-self={summary.self} data-previous={summary.previous} data-end={summary.end}
                    data-monotonicity={summary.monotonicity} onClick={() => onSelect(layer, head)}
                  >
                    <Picture store={store} values={values} numRows={numRows} numColumns={numColumns} />
                    <span>{label} <span class="muted number">{number}</span></span>
                  </button>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
