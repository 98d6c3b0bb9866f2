/** The Transformer as the paper's Figure 1 draws it, from the model's own configuration, with shapes and parameter counts. */

import type { Architecture } from "../../engine/src/index.js";
import type { AttentionKind } from "../state.js";
import { Arrow, BOX_WIDTH, type Choose, type Part, PartButton, Pen, Plus } from "./figure_parts.js";
import type { FigureTexts } from "./map.js";

export interface FigureProps {
  architecture: Architecture;
  /** Numbers of source and target tokens; S and T before there is a sentence. */
  numSource: string;
  numTarget: string;
  /** The layers that are shown, from 0. */
  layers: { encoder: number; decoder: number };
  text: FigureTexts;
  /** Marks what is chosen or changed, and adds where a click leads. */
  mark: (part: Part) => Part;
  choose: Choose;
  title: string;
}

const WIDTH = 376;
const COLUMNS = { encoder: { x: 102, left: 4, outside: 14 }, decoder: { x: 274, left: 196, outside: 362 } };
const FRAME_WIDTH = 176;
const BETWEEN = 188;

type Sublayer = "self_attention" | "cross_attention" | "feed_forward";

export function TransformerFigure(props: FigureProps) {
  const encoder = new Pen(COLUMNS.encoder.x, 0, props.choose);
  const decoder = new Pen(COLUMNS.decoder.x, 0, props.choose);
  drawStack(props, encoder, "encoder");
  const cross = drawStack(props, decoder, "decoder");
  drawOutput(props, decoder);
  const memory = new Pen(encoder.x, encoder.y, props.choose);
  drawMemory(props, memory, cross);
  const top = Math.min(memory.y, decoder.y);
  return (
    <svg class="figure" viewBox={`0 ${top} ${WIDTH} ${4 - top}`} role="group" aria-label={props.title}>
      {encoder.drawn}
      {decoder.drawn}
      {memory.drawn}
    </svg>
  );
}

function format(count: number): string {
  return count.toLocaleString("en");
}

/** Inputs, embedding, positions, and one layer in its frame; returns the y below the cross-attention. */
function drawStack(props: FigureProps, pen: Pen, stack: "encoder" | "decoder"): number {
  const { architecture: model, text, mark, numSource, numTarget } = props;
  const isEncoder = stack === "encoder";
  const side = isEncoder ? "source" : "target";
  const size = isEncoder ? numSource : numTarget;
  const shape = `${size} × ${model.d_model}`;
  const own = model.parameters[`${side}_embedding`];
  pen.label(isEncoder ? text.source : text.target, text.tokens(size));
  pen.arrow(10);
  pen.box(mark({ id: `${stack}.embedding`, side, name: text.embedding, shape, parameters: own === undefined ? text.shared : text.parameters(format(own)) }));
  if (model.positions !== "rotary") drawPositions(props, pen, stack);
  pen.arrow(10, false);
  const bottom = pen.y;
  const sublayers: Sublayer[] = isEncoder ? ["self_attention", "feed_forward"] : ["self_attention", "cross_attention", "feed_forward"];
  let cross = 0;
  for (const sublayer of sublayers) {
    const below = drawSublayer(props, pen, stack, sublayer);
    if (sublayer === "cross_attention") cross = below;
  }
  pen.arrow(10, false);
  const { left } = COLUMNS[stack];
  pen.drawn.unshift(<rect class="frame" x={left} y={pen.y} width={FRAME_WIDTH} height={bottom - pen.y} rx={8} />);
  const count = isEncoder ? model.num_encoder_layers : model.num_decoder_layers;
  pen.add(<text class="times" x={isEncoder ? left + 4 : left + FRAME_WIDTH - 4} y={pen.y - 5} text-anchor={isEncoder ? "start" : "end"}>{`${count} ×`}</text>);
  if (model.final_norm) {
    pen.arrow(16);
    pen.box(mark({ id: `${stack}.norm`, side, name: text.norms[model.norm], ...countOf(model, `${stack}.norm`) }));
  }
  return cross;
}

function countOf({ parameters }: Architecture, part: string): { count?: string } {
  const count = parameters[part];
  return count === undefined ? {} : { count: format(count) };
}

/** The addition of the positional encoding, with its wave outside. */
function drawPositions({ architecture: model, text, mark, choose }: FigureProps, pen: Pen, stack: "encoder" | "decoder"): void {
  const side = stack === "encoder" ? "source" : "target";
  const outward = stack === "encoder" ? -1 : 1;
  pen.arrow(10);
  const y = pen.y - 8;
  pen.plus();
  const wave = pen.x + 56 * outward;
  pen.add(<Arrow points={[[wave - 10 * outward, y], [pen.x + 8 * outward, y]]} />);
  const learned = model.parameters[`${side}_positions`];
  const part = mark({ id: `${stack}.positions`, side, name: text.positions[model.positions], ...(learned === undefined ? {} : { parameters: text.parameters(format(learned)) }) });
  pen.add(
    <PartButton part={part} choose={choose}>
      <Plus x={pen.x} y={y} />
      <circle cx={wave} cy={y} r={10} />
      <path class="sign" d={`M${wave - 7} ${y}c3 -10 4 -10 7 0s4 10 7 0`} />
      <text class="detail" x={pen.x - 14 * outward} y={y + 4} text-anchor={outward < 0 ? "start" : "end"}>{text.positions_short}</text>
    </PartButton>,
  );
}

/** A sublayer with its norm and its residual connection; returns the y of the horizontal line of K and V. */
function drawSublayer(props: FigureProps, pen: Pen, stack: "encoder" | "decoder", sublayer: Sublayer): number {
  const { architecture: model, text, mark, layers, numSource, numTarget } = props;
  const isEncoder = stack === "encoder";
  const side = isEncoder ? "source" : "target";
  const place = `${stack}.layers.${layers[stack]}.${sublayer}`;
  const count = (name: string): string => text.parameters(format(model.parameters[name] ?? 0));
  const norm = (name: string): Part => mark({ id: `${stack}.${sublayer}_norm`, side, name, ...countOf(model, `${place}_norm`) });
  const size = isEncoder ? numSource : numTarget;
  const before = model.norm_placement === "pre";
  pen.arrow(8, false);
  const branch = pen.y;
  if (before) {
    pen.arrow(8);
    pen.box(norm(text.norms[model.norm]));
  }
  let below = 0;
  if (sublayer === "feed_forward") {
    pen.arrow(12);
    pen.box(mark({ id: `${stack}.${sublayer}`, side, name: `${text.feed_forward}, ${text.activations[model.activation]}`, shape: `${size} × ${model.d_ff} → ${size} × ${model.d_model}`, parameters: count(place) }));
  } else {
    const kind: AttentionKind = sublayer === "cross_attention" ? "cross" : stack;
    below = pen.y - 10;
    if (kind === "cross") drawQuery(pen);
    else pen.fan();
    pen.box(mark({ id: `${stack}.${sublayer}`, side, name: text.attention[kind], shape: text.heads(model.num_heads, `${size} × ${model.d_model}`), parameters: count(place) }));
  }
  pen.arrow(10);
  const add = pen.y;
  const inward = isEncoder ? -1 : 1;
  const { outside } = COLUMNS[stack];
  if (before) pen.plus(mark({ id: `${stack}.${sublayer}_add`, side, name: text.add }));
  else pen.box(norm(text.add_norms[model.norm]));
  const middle = (add + pen.y) / 2;
  const edge = pen.x + inward * (before ? 8 : BOX_WIDTH / 2);
  pen.add(<Arrow points={[[pen.x, branch], [outside, branch], [outside, middle], [edge, middle]]} />);
  return below;
}

/** The query of the cross-attention; key and value come from the encoder. */
function drawQuery(pen: Pen): void {
  const end = pen.y - 20;
  pen.add(<Arrow points={[[pen.x, pen.y], [pen.x, pen.y - 6], [pen.x + 32, pen.y - 6], [pen.x + 32, end]]} />);
  for (const [name, offset] of [["V", -32], ["K", 0], ["Q", 32]] as const) {
    pen.add(<text class="letter" x={pen.x + offset + 5} y={end + 12}>{name}</text>);
  }
  pen.y = end;
}

/** The encoder's output, which gives the cross-attention its keys and values. */
function drawMemory({ architecture: model, text, numSource }: FigureProps, pen: Pen, cross: number): void {
  const { x, y } = pen;
  const { x: target } = COLUMNS.decoder;
  pen.add(<text class="detail" x={x} y={y - 16} text-anchor="middle">{text.memory} {`${numSource} × ${model.d_model}`}</text>);
  pen.add(<Arrow points={[[x, y], [x, y - 10], [BETWEEN, y - 10], [BETWEEN, cross], [target - 32, cross], [target - 32, cross - 10]]} />);
  pen.add(<Arrow points={[[target - 32, cross], [target, cross], [target, cross - 10]]} />);
  pen.y -= 28;
}

function drawOutput({ architecture: model, text, mark, numTarget }: FigureProps, pen: Pen): void {
  const shape = `${numTarget} × ${format(model.target_vocab_size)}`;
  const own = model.parameters.output;
  pen.arrow(16);
  pen.box(mark({ id: "output", side: "target", name: text.linear, shape, parameters: own === undefined ? text.shared : text.parameters(format(own)) }));
  pen.arrow(12);
  pen.box(mark({ id: "softmax", side: "target", name: "Softmax", shape }));
  pen.arrow(10);
  pen.label(text.probabilities);
}
