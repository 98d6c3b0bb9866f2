/** The map: the model drawn as in Figure 1 of the paper. A click on a part opens its view. */

import "./map.css";

import { useEffect, useState } from "preact/hooks";

import { chosenLayer, stackOf, sublayersOf } from "../chosen.js";
import { type Session, useSession } from "../session.js";
import type { AttentionKind, State, ViewName } from "../state.js";
import { texts, useTexts } from "../text.js";
import { BaselineFigure } from "./baseline_figure.js";
import type { Part } from "./figure_parts.js";
import { type FigureProps, TransformerFigure } from "./transformer_figure.js";

const TEXTS = texts({
  en: {
    title: "Map of the model", summary: (total: string) => `${total} parameters. Each box has the shape of its output and its number of parameters; a click opens its view.`,
    encoder_layer: "Encoder layer", decoder_layer: "Decoder layer", previous: "Previous layer", next: "Next layer",
    of: (layer: number, count: number) => `${layer} of ${count}`,
    source: "Source", target: "Translation, shifted right", tokens: (count: string) => `${count} tokens`, embedding: "Embedding", shared: "shared weights",
    parameters: (count: string) => `${count} parameters`, add: "Add", add_norms: { layer: "Add & Norm", rms: "Add & RMSNorm", batch: "Add & BatchNorm" },
    norms: { layer: "LayerNorm", rms: "RMSNorm", batch: "BatchNorm" },
    positions: { sinusoidal: "Sinusoidal positions", learned: "Learned positions", rotary: "Rotary positions" }, positions_short: "positions",
    attention: { encoder: "Self-attention", decoder: "Masked self-attention", cross: "Cross-attention" },
    heads: (count: number, shape: string) => `${count} heads, ${shape}`, feed_forward: "Feed-forward", activations: { relu: "ReLU", gelu: "GELU", swiglu: "SwiGLU" },
    memory: "memory", linear: "Linear", probabilities: "Next-token probabilities",
    bidirectional: (cell: string) => `Bi-${cell}`, layers: (name: string, count: number) => `${name} × ${count}`,
    convolution: (width: number) => `Convolution ${width}`, causal_convolution: (width: number) => `Causal conv. ${width}`, in_each_layer: (name: string) => name,
    no_parameters: "no parameters",
    scoring: { scaled_dot: "Scaled dot attention", dot: "Dot-product attention", additive: "Additive attention" }, readout: "Readout",
  },
  zh: {
    title: "模型结构图", summary: (total: string) => `共 ${total} 个参数。方框中是输出的形状和参数量；点击方框打开对应的视图。`,
    encoder_layer: "编码器层", decoder_layer: "解码器层", previous: "上一层", next: "下一层",
    of: (layer: number, count: number) => `${layer} / ${count}`,
    source: "源句", target: "译文（右移一位）", tokens: (count: string) => `${count} 个词元`, embedding: "词嵌入", shared: "共享权重",
    parameters: (count: string) => `${count} 个参数`, add: "相加", add_norms: { layer: "相加与 LayerNorm", rms: "相加与 RMSNorm", batch: "相加与 BatchNorm" },
    norms: { layer: "LayerNorm", rms: "RMSNorm", batch: "BatchNorm" },
    positions: { sinusoidal: "正弦位置编码", learned: "可学习位置编码", rotary: "旋转位置编码" }, positions_short: "位置编码",
    attention: { encoder: "自注意力", decoder: "带掩码的自注意力", cross: "交叉注意力" },
    heads: (count: number, shape: string) => `${count} 头，${shape}`, feed_forward: "前馈网络", activations: { relu: "ReLU", gelu: "GELU", swiglu: "SwiGLU" },
    memory: "编码器输出", linear: "线性层", probabilities: "下一个词元的概率",
    bidirectional: (cell: string) => `双向 ${cell}`, layers: (name: string, count: number) => `${name} × ${count}`,
    convolution: (width: number) => `卷积（宽 ${width}）`, causal_convolution: (width: number) => `因果卷积（宽 ${width}）`, in_each_layer: (name: string) => `各层的${name}`,
    no_parameters: "无参数",
    scoring: { scaled_dot: "缩放点积注意力", dot: "点积注意力", additive: "加性注意力" }, readout: "读出层",
  },
});

export type FigureTexts = (typeof TEXTS)["en"];

const PHONE = "(max-width: 800px)";

export function ModelMap({ session }: { session: Session }) {
  useSession(session);
  const { store, model, shown: run } = session;
  const text = useTexts(store, TEXTS);
  const [isPhone, setPhone] = useState(() => matchMedia(PHONE).matches);
  const layers = useLayers(session);
  useEffect(() => {
    const query = matchMedia(PHONE);
    const follow = (): void => setPhone(query.matches);
    query.addEventListener("change", follow);
    return () => query.removeEventListener("change", follow);
  }, []);
  if (model === null) return null;
  const architecture = model.manifest.model;
  const Figure = architecture.architecture === "transformer" ? TransformerFigure : BaselineFigure;
  const figure: FigureProps = {
    architecture, layers, text, title: text.title,
    numSource: run ? String(run.source.length) : "S",
    numTarget: run ? String(run.target.length) : "T",
    mark: (part) => markPart(part, store.state, layers),
    choose: (change) => store.update(change),
  };
  const content = (
    <>
      <p class="muted small">{text.summary(architecture.num_parameters.toLocaleString("en"))}</p>
      {architecture.architecture === "transformer" && (
        <div class="layer-choosers">
          <LayerChooser session={session} text={text} stack="encoder" layer={layers.encoder} count={architecture.num_encoder_layers} />
          <LayerChooser session={session} text={text} stack="decoder" layer={layers.decoder} count={architecture.num_decoder_layers} />
        </div>
      )}
      <Figure {...figure} />
    </>
  );
  return isPhone ? <details class="map-content"><summary>{text.title}</summary>{content}</details> : <div class="map-content">{content}</div>;
}

type Layers = FigureProps["layers"];

/** The layer of each stack: the state's in the stack of the chosen attention; in the other, that which was chosen last. */
function useLayers(session: Session): Layers {
  const { model, store } = session;
  const [last, setLast] = useState<{ encoder: number; decoder: number }>({ encoder: -1, decoder: -1 });
  const stack = stackOf(store.state.attention);
  const current = model === null ? -1 : chosenLayer({ model }, store.state, stack);
  useEffect(() => setLast((before) => ({ ...before, [stack]: current })), [stack, current]);
  const within = (layer: number, count: number): number => (layer < 0 ? count - 1 : Math.min(layer, count - 1));
  const { num_encoder_layers = 1, num_decoder_layers = 1 } = model?.manifest.model ?? {};
  const found = { encoder: within(last.encoder, num_encoder_layers), decoder: within(last.decoder, num_decoder_layers) };
  return { ...found, [stack]: current };
}

interface ChooserProps {
  session: Session;
  text: FigureTexts;
  stack: "encoder" | "decoder";
  layer: number;
  count: number;
}

function LayerChooser({ session, text, stack, layer, count }: ChooserProps) {
  const { store } = session;
  const name = stack === "encoder" ? text.encoder_layer : text.decoder_layer;
  const go = (to: number): void => store.update({ attention: attentionIn(stack, store.state.attention), layer: to });
  return (
    <div class="layer-chooser" role="group" aria-label={name}>
      <span class="small">{name}</span>
      <button type="button" aria-label={`${name}: ${text.previous}`} disabled={layer === 0} onClick={() => go(layer - 1)}>−</button>
      <span class="number small" data-layer={layer}>{text.of(layer + 1, count)}</span>
      <button type="button" aria-label={`${name}: ${text.next}`} disabled={layer === count - 1} onClick={() => go(layer + 1)}>+</button>
    </div>
  );
}

/** The kind of attention to choose with a stack: the chosen one, if the stack has it. */
function attentionIn(stack: "encoder" | "decoder", current: AttentionKind): AttentionKind {
  if (stack === "encoder") return "encoder";
  return current === "encoder" ? "cross" : current;
}

/** What a click on a part sets, whether its view shows it, and whether an intervention changes it. */
function markPart(part: Part, state: State, layers: Layers): Part {
  const [first = "", name = ""] = part.id.split(".");
  const stack = first === "encoder" ? "encoder" : "decoder";
  const changed = isChanged(part.id, state, layers);
  const here = { layer: layers[stack], attention: attentionIn(stack, state.attention) };
  /** A view with a switch that says which part it shows. */
  const place = (view: ViewName, options: Record<string, string>, defaults: Record<string, string>): Part => ({
    ...part, changed, go: { ...here, view, options: { ...state.options, ...options } },
    lit: state.view === view && Object.entries(options).every(([option, value]) => (state.options[option] ?? defaults[option] ?? value) === value),
  });
  if (first === "output" || first === "softmax") {
    return { ...part, changed, go: { view: "decoding" }, lit: state.view === "decoding" || (state.view === "beam" && first === "softmax") };
  }
  if (name === "positions") return { ...part, changed, go: { view: "positions" }, lit: state.view === "positions" };
  if (name.endsWith("norm")) return place("norms", { "norms.place": `${stack}.${name === "norm" ? "final" : name.replace("_norm", "")}` }, { "norms.place": "encoder.self_attention" });
  if (name.endsWith("_add") || name === "embedding") {
    const sublayers: string[] = sublayersOf(stack);
    const index = name === "embedding" ? 0 : layers[stack] * sublayers.length + sublayers.indexOf(name.replace("_add", "")) + 1;
    return place("residual", { "residual.stack": stack, "residual.place": String(index) }, { "residual.stack": "encoder" });
  }
  if (name === "feed_forward") return place("feed_forward", { "feed_forward.stack": stack }, { "feed_forward.stack": "encoder" });
  const kind: AttentionKind = name === "cross_attention" ? "cross" : stack;
  const inView = state.view === "attention" || state.view === "head" || state.view === "over_time";
  const lit = (inView && state.attention === kind) || (state.view === "explanation" && kind === "cross");
  return { ...part, changed, lit, go: { view: inView ? state.view : "attention", attention: kind, layer: layers[stack], query: -1, key: -1 } };
}

function isChanged(id: string, { interventions }: State, layers: Layers): boolean {
  const [stack, name] = id.split(".");
  return interventions.some((one) => {
    if (one.stack !== stack) return false;
    if (one.kind === "no_positions") return name === "positions";
    return (one.sublayer === undefined ? name?.endsWith("attention") || name === "feed_forward" : name === one.sublayer) &&
      (one.layer === undefined || one.layer === layers[one.stack]);
  });
}
