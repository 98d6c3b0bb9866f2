/** Recurrent and convolutional models: their own parts, with shapes and parameter counts. */

import type { Architecture } from "../../engine/src/index.js";
import { Arrow, BOX_WIDTH, Pen } from "./figure_parts.js";
import type { FigureProps } from "./transformer_figure.js";

const WIDTH = 376;
const [ENCODER, DECODER, BETWEEN] = [84, 284, 184];
const LOOP = 370;
const HALF_BOX = 26;

export function BaselineFigure(props: FigureProps) {
  const { architecture: model, text, mark, numSource, numTarget, choose } = props;
  const [source, target] = [`${numSource} × ${model.d_model}`, `${numTarget} × ${model.d_model}`];
  const count = (name: RegExp, none = text.shared): string => {
    const total = sum(model, name);
    return total === 0 ? none : text.parameters(total.toLocaleString("en"));
  };
  const names = model.architecture === "recurrent" ? recurrentNames(model, props) : convolutionalNames(model, props);
  const encoder = new Pen(ENCODER, 0, choose);
  encoder.label(text.source, text.tokens(numSource));
  encoder.arrow();
  encoder.box(mark({ id: "encoder.embedding", side: "source", name: text.embedding, shape: source, parameters: count(/^(tables\.source|source_)/) }));
  encoder.arrow();
  encoder.box({ id: "encoder.layers", side: "source", name: names.encoder, shape: source, parameters: count(/^encoder/) });
  const decoder = new Pen(DECODER, 0, choose);
  decoder.label(text.target, text.tokens(numTarget));
  decoder.arrow();
  decoder.box(mark({ id: "decoder.embedding", side: "target", name: text.embedding, shape: target, parameters: count(/^(tables\.target|target_)/) }));
  const drawLayers = (): number => {
    decoder.arrow();
    decoder.box({ id: "decoder.layers", side: "target", name: names.decoder, shape: target, parameters: count(names.decoderParts) });
    return decoder.y + HALF_BOX;
  };
  const drawAttention = (): number => {
    decoder.arrow(20);
    decoder.box(mark({ id: "decoder.cross_attention", side: "target", name: names.attention, shape: `${numTarget} × ${numSource}`, parameters: count(names.attentionParts, text.no_parameters) }));
    return decoder.y + HALF_BOX;
  };
  // Bahdanau's decoder attends with its last state before each step; in the others the output of the layers attends.
  const attendsFirst = model.architecture === "recurrent" && model.attention_scoring === "additive";
  const lower = attendsFirst ? drawAttention() : drawLayers();
  const upper = attendsFirst ? drawLayers() : drawAttention();
  const attention = attendsFirst ? lower : upper;
  if (attendsFirst) {
    const side = DECODER + BOX_WIDTH / 2;
    decoder.add(<Arrow points={[[side, upper], [LOOP, upper], [LOOP, lower], [side, lower]]} />);
  }
  decoder.arrow();
  decoder.box({ id: "readout", side: "target", name: text.readout, shape: target, parameters: count(/^readout/) });
  decoder.arrow();
  decoder.box(mark({ id: "output", side: "target", name: text.linear, shape: `${numTarget} × ${model.target_vocab_size.toLocaleString("en")}`, parameters: count(/^(tables\.)?output/) }));
  decoder.arrow();
  decoder.box(mark({ id: "softmax", side: "target", name: "Softmax" }));
  decoder.arrow();
  decoder.label(text.probabilities);
  encoder.add(<text class="detail" x={ENCODER} y={encoder.y - 16} text-anchor="middle">{text.memory}</text>);
  encoder.add(<Arrow points={[[ENCODER, encoder.y], [ENCODER, encoder.y - 10], [BETWEEN, encoder.y - 10], [BETWEEN, attention], [DECODER - BOX_WIDTH / 2, attention]]} />);
  return (
    <svg class="figure" viewBox={`0 ${decoder.y} ${WIDTH} ${4 - decoder.y}`} role="group" aria-label={props.title}>
      {encoder.drawn}
      {decoder.drawn}
    </svg>
  );
}

/** The parameters of all parts whose name matches. */
function sum({ parameters }: Architecture, name: RegExp): number {
  return Object.entries(parameters).reduce((total, [part, count]) => total + (name.test(part) ? count : 0), 0);
}

interface Names {
  encoder: string;
  decoder: string;
  attention: string;
  /** The parameters of the decoder's layers, and those of its attention. */
  decoderParts: RegExp;
  attentionParts: RegExp;
}

function recurrentNames(model: Architecture, { text }: FigureProps): Names {
  const cell = model.cell.toUpperCase();
  return {
    encoder: text.layers(text.bidirectional(cell), model.num_encoder_layers),
    decoder: text.layers(cell, model.num_decoder_layers),
    attention: text.scoring[model.attention_scoring],
    decoderParts: /^(decoder\.(layers|first|upper)|first_state)/,
    attentionParts: /^decoder(\.(query|key|vector|weighting))?$/,
  };
}

function convolutionalNames(model: Architecture, { text }: FigureProps): Names {
  return {
    encoder: text.layers(text.convolution(model.kernel_size), model.num_encoder_layers),
    decoder: text.layers(text.causal_convolution(model.kernel_size), model.num_decoder_layers),
    attention: text.in_each_layer(text.scoring[model.attention_scoring]),
    decoderParts: /^decoder/,
    attentionParts: /^(attention|key)/,
  };
}
