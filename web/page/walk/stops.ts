/** The fourteen stops of the guided walk: where in the paper it is, what the page shows, and what to see there. */

import type { Language, State } from "../state.js";

export interface Stop {
  /** Section of "Attention Is All You Need". */
  section: string;
  /** What the stop sets; the sentence stays. */
  view: Partial<State>;
  text: Record<Language, { title: string; body: string }>;
}

/** The layers, heads and cells that a stop does not name. */
const START: Partial<State> = { run: "base", query: -1, key: -1, layer: 0, head: 0, step: -1 };

export const STOPS: readonly Stop[] = [
  {
    section: "5.1",
    view: { ...START, view: "decoding", step: 0 },
    text: {
      en: {
        title: "From characters to subwords",
        body: "The sentence is cut into subwords: frequent words stay whole, rare ones are split. Each subword has a number, its id. A tag at the start names the target language in models with several, and an end token closes the sentence.",
      },
      zh: {
        title: "从字符到子词",
        body: "句子先被切成子词：常用词保持完整，罕见词被拆开。每个子词对应一个编号（id）。如果模型支持多种目标语言，句首有一个标明目标语言的标记；句末是结束符。",
      },
    },
  },
  {
    section: "3.4",
    view: { ...START, view: "residual" },
    text: {
      en: {
        title: "Embeddings",
        body: "Each id selects a row of the embedding matrix, multiplied by √d_model. From here on a token is a vector of d_model numbers. The first column of the map shows the length of these vectors before any layer has changed them.",
      },
      zh: {
        title: "词嵌入",
        body: "每个编号从嵌入矩阵中取出一行，再乘以 √d_model。此后，一个词元就是一个 d_model 维的向量。图中第一列是这些向量在经过任何一层之前的长度。",
      },
    },
  },
  {
    section: "3.5",
    view: { ...START, view: "positions" },
    text: {
      en: {
        title: "Positions",
        body: "Attention by itself does not know the order of its inputs. So a vector that depends only on the position is added to each embedding: sines and cosines of different wavelengths. The dot product of two of them depends on their distance alone.",
      },
      zh: {
        title: "位置编码",
        body: "注意力本身不区分输入的先后。因此要给每个嵌入向量加上一个只取决于位置的向量：由不同波长的正弦和余弦组成。任意两个位置向量的点积只取决于它们之间的距离。",
      },
    },
  },
  {
    section: "3.2.3",
    view: { ...START, view: "attention", attention: "encoder" },
    text: {
      en: {
        title: "Encoder self-attention",
        body: "In the encoder every token looks at every token of the source. A row of the matrix is one token that attends; its weights sum to 1. Point at a token to see where it looks.",
      },
      zh: {
        title: "编码器自注意力",
        body: "在编码器中，每个词元都可以看到源句的所有词元。矩阵的一行对应一个查询词元，这一行的权重之和为 1。把鼠标移到某个词元上，可以看到它关注哪些位置。",
      },
    },
  },
  {
    section: "3.2.1",
    view: { ...START, view: "head", attention: "encoder", query: 1, key: 1 },
    text: {
      en: {
        title: "Query, key and value",
        body: "A head multiplies each token's vector by three matrices: W_Q, W_K and W_V. The score of a pair is the dot product of one token's query and the other's key. Click a cell to see the sum written out.",
      },
      zh: {
        title: "查询、键与值",
        body: "一个注意力头把每个词元的向量分别乘以三个矩阵 W_Q、W_K、W_V。一个词元的查询与另一个词元的键做点积，就得到这一对词元的分数。点击任意一格，可以看到逐项展开的算式。",
      },
    },
  },
  {
    section: "3.2.1",
    view: { ...START, view: "head", attention: "encoder", query: 1, key: 1, options: { "head.unscaled": "1" } },
    text: {
      en: {
        title: "Why divide by √d_k",
        body: "A dot product of d_k terms has a variance that grows with d_k. Without the division the softmax puts nearly all weight on one token, and its gradient becomes small. The switch leaves the division out and shows this row's softmax both ways.",
      },
      zh: {
        title: "为什么要除以 √d_k",
        body: "d_k 项之和的方差随 d_k 增大。如果不做缩放，softmax 会把几乎全部权重放在一个词元上，梯度也随之变小。打开这个开关就不做缩放，可以对比这一行 softmax 的两种结果。",
      },
    },
  },
  {
    section: "3.2.2",
    view: { ...START, view: "attention", attention: "encoder", layer: 1 },
    text: {
      en: {
        title: "Several heads",
        body: "Each layer has several heads with matrices of their own, so it can look at several things at once. Their outputs are concatenated and multiplied by W_O. The wall shows all heads of all layers: some look at the previous token, some at the end token, some at one word.",
      },
      zh: {
        title: "多头注意力",
        body: "每一层有多个头，各有自己的矩阵，因此可以同时关注不同的内容。各头的输出拼接后再乘以 W_O。缩略图列出了所有层的所有头：有的看前一个词元，有的看结束符，有的集中在某一个词上。",
      },
    },
  },
  {
    section: "3.1",
    view: { ...START, view: "norms" },
    text: {
      en: {
        title: "Add and norm",
        body: "Around each sublayer there is a residual connection and a layer normalisation. LayerNorm takes mean and deviation over the features of one token. BatchNorm would take them over the tokens of a batch, where padding and other sentences spoil them.",
      },
      zh: {
        title: "残差与归一化",
        body: "每个子层外面都有残差连接和层归一化。LayerNorm 在单个词元的特征维上求均值和标准差；BatchNorm 则跨一个批次的词元求，填充和其他句子都会干扰统计结果。",
      },
    },
  },
  {
    section: "3.3",
    view: { ...START, view: "feed_forward" },
    text: {
      en: {
        title: "Feed-forward network",
        body: "After attention has moved information between tokens, a small network works on each token alone: up to d_ff units, an activation, and back to d_model. With ReLU most units are exactly zero for a given token.",
      },
      zh: {
        title: "前馈网络",
        body: "注意力在词元之间传递信息，随后由一个小网络单独处理每个词元：先升到 d_ff 维，经过激活函数，再回到 d_model 维。使用 ReLU 时，对某个词元来说大多数单元恰好为零。",
      },
    },
  },
  {
    section: "3.1",
    view: { ...START, view: "residual", layer: -1 },
    text: {
      en: {
        title: "Layer after layer",
        body: "Every sublayer adds its output to the same stream. The map shows how long each token's vector becomes and how much each sublayer adds. The last encoder layer's result is the memory that the decoder reads.",
      },
      zh: {
        title: "逐层累加",
        body: "每个子层都把自己的输出加到同一条残差流上。图中显示每个词元的向量有多长，以及各子层加上了多少。编码器最后一层的结果就是供解码器读取的记忆（memory）。",
      },
    },
  },
  {
    section: "3.2.3",
    view: { ...START, view: "attention", attention: "decoder", layer: -1 },
    text: {
      en: {
        title: "The decoder sees only the past",
        body: "The decoder reads its own output, shifted right by one: at each step it has the start token and the words so far. The hatched half is masked, so a token cannot attend to what comes after it. This is what makes training on whole sentences possible.",
      },
      zh: {
        title: "解码器只能看到过去",
        body: "解码器读取右移一位的自身输出：每一步只有开始符和已生成的词。带斜线的一半被掩码遮住，词元不能关注它之后的内容。正因为如此，训练时才能一次处理整个句子。",
      },
    },
  },
  {
    section: "3.2.3",
    view: { ...START, view: "attention", attention: "cross", layer: -1, head: -1 },
    text: {
      en: {
        title: "Cross-attention",
        body: "Here the queries come from the decoder, the keys and values from the memory. So each output token looks at the source words it needs. The strongest weights give a word alignment, though not an explanation of the choice.",
      },
      zh: {
        title: "交叉注意力",
        body: "这里的查询来自解码器，键和值来自编码器的记忆，于是每个输出词元都能关注它所需要的源词。权重最大的位置给出词对齐，但这还不等于解释了模型的选择。",
      },
    },
  },
  {
    section: "3.4",
    view: { ...START, view: "decoding", step: 1 },
    text: {
      en: {
        title: "Choosing a token",
        body: "The last vector is multiplied by the output matrix, and a softmax makes probabilities of all tokens in the vocabulary. Greedy search takes the most probable one and appends it to the input. Click another candidate to see how the sentence would go on.",
      },
      zh: {
        title: "选出一个词元",
        body: "最后一个向量乘以输出矩阵，再经 softmax 得到词表中每个词元的概率。贪心搜索取概率最大的一个，接到输入后面。点击其他候选，可以看到句子会如何继续。",
      },
    },
  },
  {
    section: "6.1",
    view: { ...START, view: "beam" },
    text: {
      en: {
        title: "Beam search, and the translation",
        body: "The best next token is not always part of the best sentence. Beam search keeps several beginnings, extends each, and drops the worst. Finished ones are compared by their log-probability divided by a length penalty.",
      },
      zh: {
        title: "束搜索与最终译文",
        body: "当前最优的词元不一定属于最优的句子。束搜索同时保留若干个开头，逐个扩展，再淘汰较差的。完成的候选按对数概率除以长度惩罚后的得分比较。",
      },
    },
  },
];
