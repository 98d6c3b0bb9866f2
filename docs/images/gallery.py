"""Draw the images of the gallery and write its pages, docs/gallery.md and docs/gallery.zh-CN.md.

    python docs/images/gallery.py            # images and pages; needs a Chinese font and takes a few minutes
    python docs/images/gallery.py --pages    # pages only

Every figure of `heedful paper figures` has an entry; a test compares the pages with the output of this script.
"""
# ruff: noqa: E501, RUF001

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs" / "images" / "gallery"
sys.path.insert(0, str(ROOT))

LARGEST_SVG = 60_000
"""Larger SVG files, in bytes, are replaced by PNG."""
NUM_COLOURS = 128


@dataclass(frozen=True)
class Entry:
    """A figure: the two sentences below it and what computes it, in English and Chinese."""

    title: tuple[str, str]
    text: tuple[str, str]
    computed: tuple[str, str]
    command: str | None = None
    """None: `heedful paper figures --only NAME`."""


SECTIONS: dict[tuple[str, str], dict[str, Entry]] = {
    ("Translating", "翻译过程"): {
        "decoding": Entry(
            ("The decoding loop", "解码循环"),
            (
                "Each step reads the last token, which opens one more row of the causal mask, attends to the source, and takes the likeliest token of the softmax. The German verb comes last, and cross-attention goes back to the fourth word of the source to translate it.",
                "每一步读入上一个词元，因果掩码随之多打开一行；然后关注源句，再从 softmax 里取概率最大的词元。源句里一个词译成两个词元时，交叉注意力连续两步停在同一列。",
            ),
            (
                "greedy search, and the attention of [`Transformer`](../heedful/model/transformer.py) when it reads the translation; a GIF is written too: [`decoding.gif`](images/gallery/decoding.gif)",
                "贪心搜索，以及 [`Transformer`](../heedful/model/transformer.py) 读入译文时的注意力；同时写出 GIF：[`decoding.gif`](images/gallery/decoding.zh-CN.gif)",
            ),
        ),
        "attention": Entry(
            ("Attention of a trained model", "训练好的模型的注意力"),
            (
                "A row is what the decoder reads, a column what it looks at, and the token that the row predicts stands on the right. A head of layer 1 looks at the word that was just read, a head of layer 2 at the word to be written next.",
                "行是解码器读入的词元，列是它关注的词元，右侧是这一行预测出的词元。第 1 层的一个头看的是刚读入的词，第 2 层的一个头看的是接下来要写的词。",
            ),
            (
                "the attention of every head; shown are the head that the model directory records for word alignment, and heads chosen by the measure in their title",
                "所有头的注意力；画出的是模型目录里为词对齐记录的头，以及按标题所写的标准选出的头",
            ),
        ),
    },
    ("Architecture", "结构"): {
        "architecture": Entry(
            ("Figure 1 with shapes", "带形状的图 1"),
            (
                "Every box has the shape of its output and its number of parameters, from a run of the model itself. `--preset` or `-m` draws another model.",
                "每个框都标出输出的形状和参数量，取自模型本身的一次运行。用 `--preset` 或 `-m` 可以画别的模型。",
            ),
            (
                "a forward pass on the meta device, with shapes recorded by hooks",
                "在 meta 设备上做一次前向传播，用 hook 记录形状",
            ),
        ),
        "multi_head": Entry(
            ("Figure 2 with shapes", "带形状的图 2"),
            (
                "On the left one head, on the right all of them: splitting adds an axis of 8 heads, and concatenation removes it. Only scores and weights have queries × keys as their last two axes; everything else has one row per token.",
                "左边是一个头，右边是全部的头：拆分时多出一个长为 8 的轴，拼接时又去掉。只有分数和权重的最后两个轴是查询 × 键，其余张量都是每个词元一行。",
            ),
            (
                "[`MultiHeadAttention`](../heedful/model/attention.py) on the meta device",
                "meta 设备上的 [`MultiHeadAttention`](../heedful/model/attention.py)",
            ),
        ),
        "head_split": Entry(
            ("Splitting and concatenating the heads", "多头的拆分与拼接"),
            (
                "The 384 columns of the queries are cut into 6 heads of 64, each head computes its own weights, and the results are put side by side again. Up to there no head knows of the others; the last linear layer mixes them.",
                "查询的 384 列切成 6 个头，每头 64 列；各头算各自的权重，结果再并排放回。到此为止各头互不相干，最后的线性层才把它们混合。",
            ),
            (
                "the first self-attention of the bundled model's encoder, step by step",
                "内置模型编码器的第一个自注意力，逐步计算",
            ),
        ),
        "sequence_models": Entry(
            ("Convolutional, recurrent, Transformer", "卷积、循环与 Transformer"),
            (
                "To bring the first of seven tokens to the last, convolutions of width 5 need three layers, a recurrent network seven states in turn, attention one layer. Below, the operations that must wait for each other grow with the length for the first two and stay constant for attention.",
                "要把七个词元中第一个的信息带到最后一个，宽 5 的卷积需要三层，循环网络要依次算七个状态，注意力只要一层。下图中，须依次进行的运算数在前两者中随长度增长，在注意力中不变。",
            ),
            (
                "the layers of [Table 1](paper/README.md), by gradients and by the graph of operations",
                "[表 1](paper/README.zh-CN.md) 的各种层，由梯度和运算图得出",
            ),
        ),
    },
    ("Masks and positions", "掩码与位置"): {
        "padding_mask": Entry(
            ("Padding mask + causal mask", "填充掩码 + 因果掩码"),
            (
                "0 lets a query see a key, −∞ hides it, and the sum hides what either hides. Queries at padding see nothing at all.",
                "0 表示查询可以看到键，−∞ 表示看不到；两者相加，任一方遮住的就遮住。填充处的查询什么也看不到。",
            ),
            (
                "[`segment_mask` and `causal_mask`](../heedful/model/attention.py)",
                "[`segment_mask` 与 `causal_mask`](../heedful/model/attention.py)",
            ),
        ),
        "masks": Entry(
            ("Masks of packed sentences", "打包句子的掩码"),
            (
                "Heedful packs several sentence pairs into one row instead of padding each. The segment mask keeps every sentence to itself: blocks on the diagonal, cut to triangles in the decoder.",
                "Heedful 不给每句补齐，而是把几个句对装进一行。分段掩码让每句只关注自己：对角线上的方块，在解码器里再切成三角形。",
            ),
            (
                "[`segment_mask` and `causal_mask`](../heedful/model/attention.py)",
                "[`segment_mask` 与 `causal_mask`](../heedful/model/attention.py)",
            ),
        ),
        "positions": Entry(
            ("Positional encoding", "位置编码"),
            (
                "Each feature is a sine or cosine of the position, with wavelengths from 2π to 10,000 · 2π. The dot product of two encodings depends only on their distance, and decreases unevenly.",
                "每个特征是位置的正弦或余弦，波长从 2π 到 10,000 · 2π。两个编码的点积只取决于它们的距离，并且起伏下降。",
            ),
            (
                "[`sinusoidal_encoding`](../heedful/model/positions.py)",
                "[`sinusoidal_encoding`](../heedful/model/positions.py)",
            ),
        ),
    },
    ("Scaling and normalisation", "缩放与归一化"): {
        "scaling": Entry(
            ("Why divide by √d_k", "为什么除以 √d_k"),
            (
                "Without scaling, the spread of q·k grows as √d_k, the softmax puts nearly all weight on one key, and its gradient vanishes; divided by √d_k, nothing changes with d_k. For small d_k the unscaled gradient is *larger*: saturation matters only above about 32.",
                "不缩放时，q·k 的离散程度按 √d_k 增长，softmax 几乎把全部权重给一个键，梯度消失；除以 √d_k 之后，一切与 d_k 无关。d_k 小时，不缩放的梯度反而*更大*：大约超过 32 之后饱和才有影响。",
            ),
            (
                "[`Scoring`](../heedful/model/attention.py) on random vectors of unit variance",
                "单位方差的随机向量上的 [`Scoring`](../heedful/model/attention.py)",
            ),
        ),
        "norm_axes": Entry(
            ("Which axis is normalised", "沿哪个轴归一化"),
            (
                "LayerNorm takes mean and variance over the features of one token; BatchNorm over all tokens of the batch, for one feature. Whether padding (hatched) counts makes the difference between 12 and 15 values.",
                "LayerNorm 在一个词元的各个特征上求均值和方差；BatchNorm 对一个特征，在整个批次的词元上求。填充（斜线）算不算进去，决定了是 12 个值还是 15 个值。",
            ),
            (
                "gradients through [`LayerNorm` and `BatchNorm`](../heedful/model/norms.py)",
                "穿过 [`LayerNorm` 与 `BatchNorm`](../heedful/model/norms.py) 的梯度",
            ),
        ),
        "norms": Entry(
            ("LayerNorm and BatchNorm on a padded batch", "填充批次上的 LayerNorm 与 BatchNorm"),
            (
                "LayerNorm changes a token by its own features only. BatchNorm that includes padding depends on the padding's value; ours excludes it, but the values and gradients of a sentence still depend on the other sentences in the batch.",
                "LayerNorm 只用词元自身的特征。把填充算进去的 BatchNorm 受填充值影响；我们的实现不算填充，但一个句子的数值和梯度仍取决于同批其他句子。",
            ),
            (
                "[`LayerNorm` and `BatchNorm`](../heedful/model/norms.py)",
                "[`LayerNorm` 与 `BatchNorm`](../heedful/model/norms.py)",
            ),
        ),
        "norm_training": Entry(
            ("Three norms in training", "训练中的三种归一化"),
            (
                "The same small Transformer, data and seed with each norm: the training loss of BatchNorm decreases fastest, but in evaluation mode it is the worst. [The reasons](paper/README.md#results-of-norm_training): in training mode its statistics leak later tokens, and batches differ.",
                "同一个小 Transformer，数据和种子相同，只换归一化：BatchNorm 的训练损失下降最快，评估模式下却最差。[原因](paper/README.zh-CN.md#norm_training-的结果)：训练模式下统计量泄露了后面的词元，而且各批次不同。",
            ),
            (
                "[`TrainingStep`](../heedful/training/step.py), three times 500 steps (`--steps`), about 25 seconds on one CPU core",
                "[`TrainingStep`](../heedful/training/step.py)，三次，各 500 步（`--steps`），单核约 25 秒",
            ),
        ),
    },
    ("Training", "训练"): {
        "schedule": Entry(
            ("Learning rate", "学习率"),
            (
                "Equation 3 rises linearly during the warm-up and then falls with the square root of the step. After the warm-up its length no longer matters; the width of the model always does.",
                "公式 3 在预热阶段线性上升，之后按步数的平方根下降。预热结束后，预热的长度不再有影响；模型宽度始终有影响。",
            ),
            ("[`Schedule`](../heedful/training/optimizer.py)", "[`Schedule`](../heedful/training/optimizer.py)"),
        ),
        "smoothing": Entry(
            ("Label smoothing", "标签平滑"),
            (
                "Some of the target probability moves from the correct token to all others. The loss is then lowest below certainty: full confidence is penalised.",
                "一部分目标概率从正确的词元分给其他所有词元。于是损失在未达到十足把握时最小：过分自信会受惩罚。",
            ),
            (
                "[`smoothed_cross_entropy`](../heedful/training/loss.py); the distribution from its gradient",
                "[`smoothed_cross_entropy`](../heedful/training/loss.py)；目标分布由梯度推出",
            ),
        ),
    },
    ("Number by number", "逐个数字"): {
        "worked_example": Entry(
            ("A worked example of attention", "注意力算例"),
            (
                "Three words and two heads, with every number from the embeddings to the output. [Walkthroughs](paper/walkthroughs.md) prints the same as text.",
                "三个词、两个头，从词嵌入到输出的每个数字。[算例](paper/walkthroughs.zh-CN.md)以文字给出同样的内容。",
            ),
            (
                "[`heedful/paper/worked_example.py`](../heedful/paper/worked_example.py)",
                "[`heedful/paper/worked_example.py`](../heedful/paper/worked_example.py)",
            ),
            command='heedful paper worked-example "three little words" -o figures',
        ),
    },
}
INTRODUCTION = (
    """\
# Gallery

[中文](gallery.zh-CN.md)

Every figure of `heedful paper figures`, with the command that draws it. Figures need matplotlib (`pip install 'heedful[plots]'`) and are written as PNG and SVG;
the same command gives the same files. No number is typed in: each figure runs the code of the package.

```bash
heedful paper figures -o figures
heedful paper figures -o figures --lang zh --theme dark --only masks --only scaling
heedful paper figures -o figures -m model --sentence "Where is Tom?" --layer 2 --head 1 --head 3
```

The first command draws all figures, the translation with the bundled model. `--lang zh` writes Chinese labels (which need a Chinese font), `--theme dark` uses
colours for dark pages, and `-m` takes a model by directory or name.
""",
    """\
# 图库

[English](gallery.md)

`heedful paper figures` 的每一幅图，以及画它的命令。作图需要 matplotlib（`pip install 'heedful[plots]'`），每幅图都写成 PNG 和 SVG；同样的命令得到同样的文件。没有一个数字是手写的：每幅图都运行本包的代码。

```bash
heedful paper figures -o figures
heedful paper figures -o figures --lang zh --theme dark --only masks --only scaling
heedful paper figures -o figures -m model --sentence "Where is Tom?" --layer 2 --head 1 --head 3
```

第一条命令画出全部的图，其中的译文出自内置模型。`--lang zh` 用中文标注（需要中文字体），`--theme dark` 用适合深色页面的颜色，`-m` 按目录或名字指定模型。
""",
)
SUFFIXES = {"en": "", "zh": ".zh-CN"}


def entries() -> dict[str, Entry]:
    """All figures of the gallery by name."""
    return {name: entry for section in SECTIONS.values() for name, entry in section.items()}


def page(language: str) -> str:
    """The page in one language."""
    index = list(SUFFIXES).index(language)
    parts = [INTRODUCTION[index]]
    for titles, section in SECTIONS.items():
        parts.append(f"\n## {titles[index]}\n")
        for name, entry in section.items():
            command = entry.command or f"heedful paper figures -o figures --only {name}"
            computed = ("Computed by", "计算")[index] + (": ", "：")[index] + entry.computed[index] + ".。"[index]
            picture = picture_of(name, language, entry.title[index])
            parts.append(
                f"\n### {entry.title[index]}\n\n```bash\n{command}\n```\n\n{picture}\n\n{entry.text[index]}\n\n{computed}\n"
            )
    return "".join(parts)


def picture_of(name: str, language: str, title: str, folder: str = "images/gallery") -> str:
    """The image for light and dark pages, as HTML."""
    light, dark = (f"{folder}/{file_of(name, language, theme)}" for theme in ("light", "dark"))
    return (
        f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="{dark}">\n'
        f'  <img src="{light}" alt="{title}" width="720">\n</picture>'
    )


def file_of(name: str, language: str, theme: str) -> str:
    """The file of an image: SVG, or PNG if there is one."""
    stem = f"{name}{'-dark' if theme == 'dark' else ''}{SUFFIXES[language]}"
    return f"{stem}.png" if (FOLDER / f"{stem}.png").exists() else f"{stem}.svg"


def draw() -> None:
    """Draw every figure in both languages and themes."""
    import torch

    from heedful.cli import run
    from heedful.paper.figures import norms
    from heedful.paper.figures.registry import FIGURES

    curves = norms.train_all(steps=norms.STEPS, device=torch.device("cpu"))
    norms.train_all = lambda **given: curves  # the same in every language and theme
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for language in SUFFIXES:
        for theme in ("light", "dark"):
            with tempfile.TemporaryDirectory() as folder:
                style = ["-o", folder, "--lang", language, "--theme", theme]
                for command in (["figures"], ["worked-example", "three little words"]):
                    if run(["paper", *command, *style]) != 0:
                        raise SystemExit("a figure was not drawn")
                for name in [*FIGURES, "worked_example"]:
                    publish(Path(folder), name, file_of(name, language, theme).removesuffix(".svg"))


def publish(folder: Path, name: str, stem: str) -> None:
    """Copy a figure to the gallery: as SVG if it is small or moves, else as PNG with few colours."""
    from PIL import Image

    svg = folder / f"{name}.svg"
    if (folder / f"{name}.gif").exists():
        if "-dark" not in stem:
            shutil.copy(folder / f"{name}.gif", FOLDER / f"{stem}.gif")
        shutil.copy(svg, FOLDER / f"{stem}.svg")
    elif svg.stat().st_size <= LARGEST_SVG:
        shutil.copy(svg, FOLDER / f"{stem}.svg")
    else:
        with Image.open(folder / f"{name}.png") as image:
            best = Image.Quantize.MAXCOVERAGE  # keeps the ends of colour bars
            reduced = image.convert("RGB").quantize(NUM_COLOURS, best, dither=Image.Dither.NONE)
            reduced.save(FOLDER / f"{stem}.png", optimize=True)


def main() -> None:
    """Draw the images (not with `--pages`), and write both pages."""
    if "--pages" not in sys.argv:
        draw()
    for language, suffix in SUFFIXES.items():
        (ROOT / "docs" / f"gallery{suffix}.md").write_text(page(language), encoding="utf-8")


if __name__ == "__main__":
    main()
