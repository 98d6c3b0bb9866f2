/** Lines over a number, drawn as SVG. */

import "./line_chart.css";

import { formatNumber } from "../text.js";

export interface Line {
  name: string;
  /** source: blue; target: orange. */
  hue: "source" | "target" | "grey";
  points: readonly (readonly [x: number, y: number])[];
}

export interface Mark {
  x: number;
  y: number;
  label: string;
  lit?: boolean;
}

export interface LineChartProps {
  title: string;
  lines: readonly Line[];
  marks?: readonly Mark[];
  width: number;
  height?: number;
  xLabel: string;
  yLabel: string;
  /** Labels of whole numbers on the x axis, instead of the numbers. */
  xNames?: readonly string[];
  /** The y axis begins at 0. */
  fromZero?: boolean;
}

const MARGIN = { top: 20, right: 12, bottom: 36, left: 48 };

/** About `count` round numbers between two numbers. */
export function ticks(least: number, most: number, count: number): number[] {
  const rough = (most - least) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough) ?? rough;
  const found: number[] = [];
  for (let tick = Math.ceil(least / step - 1e-9); tick * step <= most + step * 1e-9; ++tick) found.push(tick * step);
  return found;
}

export function LineChart({ title, lines, marks = [], width, height = 200, xLabel, yLabel, xNames, fromZero = false }: LineChartProps) {
  const points = lines.flatMap((line) => line.points);
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [low, high] = [fromZero ? 0 : Math.min(...ys), Math.max(...ys)];
  const innerWidth = Math.max(40, width - MARGIN.left - MARGIN.right);
  const innerHeight = height - MARGIN.top - MARGIN.bottom;
  const at = (x: number, y: number): [number, number] => [
    MARGIN.left + ((x - left) / (right - left || 1)) * innerWidth,
    MARGIN.top + (1 - (y - low) / (high - low || 1)) * innerHeight,
  ];
  const path = (line: Line): string => line.points.map(([x, y], index) => `${index === 0 ? "M" : "L"}${at(x, y).map((one) => one.toFixed(1)).join(" ")}`).join("");
  const labels = xNames ? namesWithRoom(xNames, (index) => at(index, low)[0]) : ticks(left, right, Math.max(2, Math.min(8, Math.floor(innerWidth / 56)))).map((tick) => ({ x: tick, name: formatNumber(tick) }));
  return (
    <figure class="line-chart">
      {lines.length > 1 && <figcaption>{lines.map(({ name, hue }) => <span key={name}><i class={hue} /> {name}</span>)}</figcaption>}
      <svg width={width} height={height} role="img" aria-label={title}>
        {ticks(low, high, 4).map((tick) => {
          const [, y] = at(left, tick);
          return (
            <g key={tick}>
              <line class="grid" x1={MARGIN.left} x2={width - MARGIN.right} y1={y} y2={y} />
              <text x={MARGIN.left - 6} y={y + 4} text-anchor="end">{formatNumber(tick)}</text>
            </g>
          );
        })}
        {labels.map(({ x, name }) => <text key={x} x={at(x, low)[0]} y={height - MARGIN.bottom + 16} text-anchor="middle">{name}</text>)}
        <text class="axis" x={0} y={12}>{yLabel}</text>
        <text class="axis" x={width - MARGIN.right} y={height - 4} text-anchor="end">{xLabel}</text>
        {lines.map((line) => <path key={line.name} class={`line ${line.hue}`} d={path(line)}><title>{line.name}</title></path>)}
        {marks.map(({ x, y, label, lit }) => {
          const [left, top] = at(x, y);
          return <circle key={`${x} ${label}`} class={lit ? "mark lit" : "mark"} cx={left} cy={top} r={lit ? 5 : 3} data-x={x} data-y={y}><title>{label}</title></circle>;
        })}
      </svg>
    </figure>
  );
}

/** The names that do not overlap the one before. */
function namesWithRoom(names: readonly string[], place: (index: number) => number): { x: number; name: string }[] {
  const found: { x: number; name: string }[] = [];
  let end = -Infinity;
  for (const [x, name] of names.entries()) {
    if (name === "" || place(x) - end < 56) continue;
    found.push({ x, name });
    end = place(x);
  }
  return found;
}
