/** One pair (sin, cos) of a positional encoding as the hand of a clock: at position p, and at p + k after the rotation. */

import "./clock.css";

import type { Rotation } from "../measures/sinusoids.js";
import { formatNumber } from "../text.js";

const SIZE = 88;
const RADIUS = 36;

export interface ClockProps {
  rotation: Rotation;
  position: number;
  offset: number;
  title: string;
  /** The matrix for a pair (cos, sin), as rotary positions turn it, instead of (sin, cos). */
  cosineFirst?: boolean;
}

export function Clock({ rotation, position, offset, title, cosineFirst = false }: ClockProps) {
  const { frequency, cos, sin } = rotation;
  const upper = cosineFirst ? -sin : sin;
  const [from, to] = [position * frequency, (position + offset) * frequency];
  const end = (angle: number): [number, number] => [SIZE / 2 + RADIUS * Math.cos(angle), SIZE / 2 - RADIUS * Math.sin(angle)];
  const [[x1, y1], [x2, y2]] = [end(from), end(to)];
  const turn = Math.abs(rotation.angle) % (2 * Math.PI);
  const [sx, sy] = [SIZE / 2 + (RADIUS / 2) * Math.cos(from), SIZE / 2 - (RADIUS / 2) * Math.sin(from)];
  const [ex, ey] = [SIZE / 2 + (RADIUS / 2) * Math.cos(to), SIZE / 2 - (RADIUS / 2) * Math.sin(to)];
  return (
    <figure class="clock" data-pair={rotation.pair} data-cos={cos} data-sin={sin} data-angle={rotation.angle}>
      <svg width={SIZE} height={SIZE} role="img" aria-label={title}>
        <circle cx={SIZE / 2} cy={SIZE / 2} r={RADIUS} />
        <path class="turn" d={`M${sx} ${sy}A${RADIUS / 2} ${RADIUS / 2} 0 ${turn > Math.PI ? 1 : 0} ${rotation.angle > 0 ? 0 : 1} ${ex} ${ey}`} />
        <line class="from" x1={SIZE / 2} y1={SIZE / 2} x2={x1} y2={y1} />
        <line class="to" x1={SIZE / 2} y1={SIZE / 2} x2={x2} y2={y2} />
      </svg>
      <figcaption>
        {title}
        <table class="matrix number"><tbody>
          <tr><td>{formatNumber(cos, 3)}</td><td>{formatNumber(upper, 3)}</td></tr>
          <tr><td>{formatNumber(-upper, 3)}</td><td>{formatNumber(cos, 3)}</td></tr>
        </tbody></table>
      </figcaption>
    </figure>
  );
}
