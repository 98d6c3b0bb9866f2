/** The losses of a training run by step, with its checkpoints as points. Steps are on a logarithmic axis, since most changes come early. */

import "./loss_curve.css";

import type { Checkpoint, Checkpoints, CurvePoint } from "../model/checkpoints.js";
import { formatNumber } from "../text.js";
import { useWidth } from "./width.js";

export interface LossCurveProps {
  found: Checkpoints;
  selected: number;
  onSelect: (index: number) => void;
  title: string;
  names: { train_loss: string; valid_loss: string; step: string };
  /** The name of a checkpoint. */
  nameOf: (checkpoint: Checkpoint) => string;
}

const HEIGHT = 200;
const [LEFT, RIGHT, TOP, BOTTOM] = [36, 12, 24, 36];
const KINDS = ["train_loss", "valid_loss"] as const;

export function LossCurve({ found, selected, onSelect, title, names, nameOf }: LossCurveProps) {
  const [element, width] = useWidth(640);
  const { checkpoints, curve } = found;
  const last = Math.max(1, ...checkpoints.map(({ step }) => step), ...curve.map(({ step }) => step));
  const most = Math.max(1e-6, ...curve.flatMap((point) => KINDS.map((kind) => point[kind] ?? 0)), ...checkpoints.map((one) => lossOf(one) ?? 0));
  const x = (step: number): number => LEFT + (Math.log1p(step) / Math.log1p(last)) * (width - LEFT - RIGHT);
  const y = (loss: number): number => TOP + (1 - loss / most) * (HEIGHT - TOP - BOTTOM);
  const line = (kind: (typeof KINDS)[number]): string =>
    curve.flatMap((point) => (point[kind] === undefined ? [] : [`${x(point.step).toFixed(1)} ${y(point[kind]).toFixed(1)}`])).map((at, index) => `${index === 0 ? "M" : "L"}${at}`).join("");
  const labelled = spaced(checkpoints.map(({ step }) => x(step)), 36);
  return (
    <div class="loss-curve" ref={element}>
      <svg width={width} height={HEIGHT} role="group" aria-label={title}>
        {ticks(most).map((loss) => (
          <g key={loss}>
            <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(loss)} y2={y(loss)} />
            <text class="tick" x={LEFT - 6} y={y(loss) + 4} text-anchor="end">{formatNumber(loss)}</text>
          </g>
        ))}
        <text class="tick" x={width - RIGHT} y={HEIGHT - 4} text-anchor="end">{names.step}</text>
        {KINDS.map((kind) => <path key={kind} class={`line ${kind}`} d={line(kind)} />)}
        {KINDS.map((kind, index) => (
          <g key={kind} class={`key ${kind}`}>
            <line x1={LEFT + 132 * index} x2={LEFT + 20 + 132 * index} y1={10} y2={10} />
            <text x={LEFT + 26 + 132 * index} y={14}>{names[kind]}</text>
          </g>
        ))}
        {checkpoints.map((checkpoint, index) => (
          <g
            key={checkpoint.step} class={`checkpoint ${index === selected ? "selected" : ""}`} role="button" tabindex={0} aria-pressed={index === selected} aria-label={nameOf(checkpoint)}
            data-step={checkpoint.step} onClick={() => onSelect(index)}
            onKeyDown={(event) => {
              if (event.key !== "Enter" && event.key !== " ") return;
              event.preventDefault();
              onSelect(index);
            }}
          >
            <rect class="hit" x={x(checkpoint.step) - 12} y={TOP} width={24} height={HEIGHT - TOP} />
            {index === selected && <line class="cursor" x1={x(checkpoint.step)} x2={x(checkpoint.step)} y1={TOP} y2={HEIGHT - BOTTOM} />}
            <circle cx={x(checkpoint.step)} cy={y(lossOf(checkpoint) ?? nearest(curve, checkpoint.step) ?? 0)} r={index === selected ? 7 : 5} />
            {(labelled.has(index) || index === selected) && <text class="tick" x={x(checkpoint.step)} y={HEIGHT - BOTTOM + 16} text-anchor="middle">{checkpoint.step.toLocaleString("en")}</text>}
          </g>
        ))}
      </svg>
    </div>
  );
}

function lossOf({ valid_loss, train_loss }: Checkpoint): number | null {
  return valid_loss ?? train_loss;
}

/** The first recorded loss from a step on: where a checkpoint without a loss of its own is drawn. */
function nearest(curve: readonly CurvePoint[], step: number): number | undefined {
  const point = curve.find((one) => one.step >= step && one.valid_loss !== undefined) ?? curve.find((one) => one.step >= step);
  return point?.valid_loss ?? point?.train_loss;
}

/** Three or four round numbers from 0. */
function ticks(most: number): number[] {
  const size = 10 ** Math.floor(Math.log10(most));
  const step = [size / 2, size, 2 * size, 5 * size].find((one) => most / one <= 4) ?? 10 * size;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, index) => Number((index * step).toPrecision(6)));
}

/** Indices of places that are at least `distance` apart; the last is always among them. */
function spaced(places: readonly number[], distance: number): Set<number> {
  const found = new Set<number>();
  let next = Infinity;
  for (let index = places.length - 1; index >= 0; --index) {
    const place = places[index] ?? 0;
    if (next - place < distance) continue;
    found.add(index);
    next = place;
  }
  return found;
}
