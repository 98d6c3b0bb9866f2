/** What figures of models are drawn with: boxes that lead to views, arrows, and a pen that draws a column from the bottom up. */

import type { ComponentChildren, JSX, SVGAttributes } from "preact";

import type { State } from "../state.js";

/** A part of the model. */
export interface Part {
  /** Such as `encoder.self_attention`. */
  id: string;
  side: "source" | "target";
  name: string;
  /** The shape of the output. */
  shape?: string;
  /** The number of parameters, or where they are shared. */
  parameters?: string;
  /** The number of parameters of a box with one line. */
  count?: string;
  lit?: boolean;
  /** An intervention changes it. */
  changed?: boolean;
  /** What a click sets; without it the part is not a button. */
  go?: Partial<State>;
}

export type Choose = (change: Partial<State>) => void;

export const BOX_WIDTH = 150;

/** A group that acts as a button. */
export function PartButton({ part, choose, children }: { part: Part; choose: Choose; children: ComponentChildren }) {
  const { id, side, name, shape, parameters, count, lit, changed, go } = part;
  const act = (): void => {
    if (go !== undefined) choose(go);
  };
  const button: SVGAttributes<SVGGElement> = go === undefined ? {} : {
    role: "button", tabindex: 0, "aria-pressed": lit ?? false, "aria-label": [name, shape, parameters, count].filter(Boolean).join(", "), onClick: act,
    onKeyDown: (event: KeyboardEvent) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      act();
    },
  };
  return (
    <g class={`part ${side} ${lit ? "lit" : ""} ${changed ? "changed" : ""}`} data-part={id} data-shape={shape} data-parameters={parameters ?? count} {...button}>
      {children}
    </g>
  );
}

/** A line with right angles through points, with an arrowhead at its end. */
export function Arrow({ points, head = true }: { points: readonly (readonly [number, number])[]; head?: boolean }) {
  const [x, y] = points[points.length - 1] ?? [0, 0];
  const [beforeX, beforeY] = points[points.length - 2] ?? [x, y];
  const [dx, dy] = [Math.sign(x - beforeX), Math.sign(y - beforeY)];
  const tip = `M${x} ${y}L${x - 6 * dx + 3 * dy} ${y - 6 * dy + 3 * dx}L${x - 6 * dx - 3 * dy} ${y - 6 * dy - 3 * dx}Z`;
  return (
    <>
      <path class="flow" d={points.map(([px, py], index) => `${index === 0 ? "M" : "L"}${px} ${py}`).join("")} />
      {head && <path class="flow-head" d={tip} />}
    </>
  );
}

export function Plus({ x, y }: { x: number; y: number }) {
  return (
    <>
      <circle cx={x} cy={y} r={8} />
      <path class="sign" d={`M${x - 4} ${y}h8M${x} ${y - 4}v8`} />
    </>
  );
}

/** Draws the parts of one stack, each above the one before. */
export class Pen {
  readonly drawn: JSX.Element[] = [];

  constructor(
    /** The middle of the column. */
    readonly x: number,
    /** Where the next part begins. */
    public y: number,
    private readonly choose: Choose,
  ) {}

  label(text: string, detail?: string): void {
    if (detail !== undefined) this.add(<text class="detail" x={this.x} y={this.y - 4} text-anchor="middle">{detail}</text>);
    if (detail !== undefined) this.y -= 16;
    this.add(<text class="name" x={this.x} y={this.y - 4} text-anchor="middle">{text}</text>);
    this.y -= 20;
  }

  box(part: Part): void {
    const { count } = part;
    const lines = [part.shape, part.parameters].filter((line) => line !== undefined);
    const height = lines.length === 0 ? 24 : 24 + 14 * lines.length;
    const top = this.y - height;
    this.add(
      <PartButton part={part} choose={this.choose}>
        <rect x={this.x - BOX_WIDTH / 2} y={top} width={BOX_WIDTH} height={height} rx={4} />
        <text class="name" x={this.x} y={top + 16} text-anchor="middle">{part.name}{count && <tspan class="detail">{` ${count}`}</tspan>}</text>
        {lines.map((line, index) => [" ", <text key={index} class="detail" x={this.x} y={top + 31 + 14 * index} text-anchor="middle">{line}</text>])}
      </PartButton>,
    );
    this.y = top;
  }

  /** An addition, which is a part of its own or belongs to a larger one. */
  plus(part?: Part): void {
    const y = this.y - 8;
    if (part !== undefined) this.add(<PartButton part={part} choose={this.choose}><Plus x={this.x} y={y} /></PartButton>);
    this.y -= 16;
  }

  arrow(length = 12, head = true): void {
    this.add(<Arrow points={[[this.x, this.y], [this.x, this.y - length]]} head={head} />);
    this.y -= length;
  }

  /** Three arrows into an attention: value, key and query. */
  fan(): void {
    const [bend, end] = [this.y - 8, this.y - 20];
    for (const offset of [-32, 0, 32]) {
      this.add(<Arrow points={[[this.x, this.y], [this.x, bend], [this.x + offset, bend], [this.x + offset, end]]} />);
    }
    this.y = end;
  }

  add(element: JSX.Element): void {
    this.drawn.push(element);
  }
}
