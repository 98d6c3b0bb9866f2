/** A histogram, drawn as SVG: bars of values below 0 in the second hue, and a line at 0. */

import "./bars.css";

import type { Histogram } from "../measures/units.js";
import { formatNumber } from "../text.js";
import { ticks } from "./line_chart.js";
import { useWidth } from "./width.js";

const HEIGHT = 120;
const BOTTOM = 20;

export function Bars({ title, histogram }: { title: string; histogram: Histogram }) {
  const [box, room] = useWidth(320);
  const width = Math.min(480, room);
  const { start, width: binWidth, counts } = histogram;
  const end = start + binWidth * counts.length;
  const most = Math.max(1, ...counts);
  const x = (value: number): number => ((value - start) / (end - start)) * width;
  return (
    <figure class="bars" ref={box}>
      <figcaption class="small">{title}</figcaption>
      <svg width={width} height={HEIGHT + BOTTOM} role="img" aria-label={title}>
        {counts.map((count, bin) => {
          const from = start + bin * binWidth;
          const height = (count / most) * HEIGHT;
          return (
            <rect
              key={bin} class={from + binWidth / 2 < 0 ? "negative" : "positive"} x={x(from)} width={Math.max(1, x(from + binWidth) - x(from) - 1)} y={HEIGHT - height} height={height}
              data-from={from} data-count={count}
            >
              <title>{`${formatNumber(from)} … ${formatNumber(from + binWidth)}: ${count}`}</title>
            </rect>
          );
        })}
        <line x1={0} x2={width} y1={HEIGHT} y2={HEIGHT} />
        {start < 0 && end > 0 && <line class="zero" x1={x(0)} x2={x(0)} y1={0} y2={HEIGHT} />}
        {ticks(start, end, 5).map((tick) => <text key={tick} x={x(tick)} y={HEIGHT + 16} text-anchor="middle">{formatNumber(tick)}</text>)}
      </svg>
    </figure>
  );
}
