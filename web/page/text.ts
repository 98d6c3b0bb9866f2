/** Terms and titles that several components of the page use, and how numbers are written. */

import { type Texts, texts } from "../components/text.js";
import type { AttentionKind, ViewName } from "./state.js";

export { texts, type Texts, useLanguage, useTexts } from "../components/text.js";

/** Terms that more than one component uses. */
export const TERMS = texts({
  en: {
    encoder: "Encoder", decoder: "Decoder", layer: "Layer", head: "Head", step: "Step", source: "Source", target: "Translation",
    query: "Query", key: "Key", value: "Value", probability: "Probability", weight: "Weight", score: "Score", scaled: "Scaled score",
    self_attention: "Self-attention", masked_self_attention: "Masked self-attention", cross_attention: "Cross-attention",
    feed_forward: "Feed-forward", start: "start", end: "end", computing: "Computing…", masked: "masked",
  },
  zh: {
    encoder: "编码器", decoder: "解码器", layer: "层", head: "头", step: "步", source: "源句", target: "译文",
    query: "查询", key: "键", value: "值", probability: "概率", weight: "权重", score: "分数", scaled: "缩放后的分数",
    self_attention: "自注意力", masked_self_attention: "带掩码的自注意力", cross_attention: "交叉注意力",
    feed_forward: "前馈网络", start: "开始", end: "结束", computing: "正在计算……", masked: "被掩盖",
  },
});

export const VIEW_TITLES: Texts<Record<ViewName, string>> = {
  en: {
    decoding: "Decoding", attention: "Attention", head: "One head", beam: "Beam search", positions: "Positions",
    norms: "Normalisation", residual: "Residual stream", feed_forward: "Feed-forward", what_if: "What if",
    explanation: "Is it an explanation?", over_time: "Over training",
  },
  zh: {
    decoding: "解码", attention: "注意力", head: "一个头的计算", beam: "束搜索", positions: "位置编码",
    norms: "归一化", residual: "残差流", feed_forward: "前馈网络", what_if: "干预实验",
    explanation: "注意力是解释吗", over_time: "训练过程",
  },
};

export const ATTENTION_TITLES: Texts<Record<AttentionKind, string>> = {
  en: { encoder: "Encoder self-attention", decoder: "Masked decoder self-attention", cross: "Cross-attention" },
  zh: { encoder: "编码器自注意力", decoder: "解码器带掩码的自注意力", cross: "交叉注意力" },
};

/** A number with at most `digits` significant digits, with a real minus sign. */
export function formatNumber(value: number, digits = 3): string {
  if (value === -Infinity) return "−∞";
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(digits - 1) : Number(value.toPrecision(digits)).toString();
  return text.replace("-", "−").replace("e+", "e").replace("e-", "e−");
}

export function formatPercent(value: number): string {
  const percent = 100 * value;
  return `${percent >= 10 || percent === 0 ? percent.toFixed(0) : percent >= 0.1 ? percent.toFixed(1) : "<0.1"} %`;
}
