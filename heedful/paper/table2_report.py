"""Table 2 for people: the published rows, ours beneath them, and what must be known to read them rightly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heedful.paper.markdown import markdown_table
from heedful.paper.plot_style import LANGUAGES
from heedful.paper.table2_published import ROWS

__all__ = ["LANGUAGES", "markdown", "remarks", "scores_table", "table"]

Results = Mapping[str, Any]
Words = dict[str, str]

WORDS: dict[str, Words] = {
    "en": {
        "title": "Table 2, run again",
        "system": "system",
        "german": "BLEU EN-DE",
        "french": "BLEU EN-FR",
        "here": "BLEU, this corpus",
        "flops_german": "FLOPs EN-DE",
        "flops_french": "FLOPs EN-FR",
        "flops_here": "FLOPs, this run",
        "ours": "Heedful ({recipe}), {data}",
        "scores": "Ours, by test set",
        "data": "test set",
        "sentences": "sentences",
        "bleu": "BLEU (sacreBLEU, plain text)",
        "split": "compound-split BLEU (as in the paper's evaluation, tokenised by 13a)",
        "chrf": "chrF",
        "reading": "To read it rightly",
        "shortened": "**The recipe was shortened:** {steps:,} of its {all:,} steps ({share:.3g} %).",
        "whole": "All {all:,} steps of the recipe were run.",
        "longer": "**The run is longer than the recipe:** {steps:,} steps instead of {all:,}.",
        "rising": "The warm-up of {warmup:,} steps was not over: the learning rate was still rising at the end.",
        "changed": "**Changed from the recipe:** {list}.",
        "unchanged": "Nothing else of the recipe was changed.",
        "change": "`{key}` is {run} instead of {recipe}",
        "averaged": "The weights are an average; checkpoints in it: {count} (recipe: {wanted}).",
        "other_weights": "The weights are “{weights}”, not the average of the last {wanted} checkpoints.",
        "vocabulary": "The shared vocabulary has {size:,} subwords; the recipe asks for about {wanted:,}.",
        "small_vocabulary": "The corpus does not yield the {asked:,} asked for.",
        "published": "The published figures are on newstest2014 after training on WMT 2014 (4.5 M pairs "
        "English-German, 36 M English-French). Ours come from {pairs:,} pairs and from the test sets named here: "
        "**they can be set beside the published ones only where training and test data are the same.**",
        "two_kinds": "Published BLEU is on tokenised text; the authors' script for English to German also takes "
        "hyphenated compounds apart. That scores higher than sacreBLEU on plain text, and the two may not be compared. "
        "The nearest to the paper's is our compound-split BLEU, which stands in the first table; its tokens are "
        "sacreBLEU's 13a, not those of Moses's script.",
        "no_split": "Where the target language has no spaces between words, the first table has sacreBLEU's figure.",
        "flops": "Published FLOPs are estimates: hours × GPUs × what a GPU sustains (9.5 TFLOP/s for a P100). Ours "
        "({flops:.2e}) are counted: the matrix products of {steps:,} steps, forward and backward, empty places of rows "
        "included; all {all:,} steps of this model come to {whole:.2e}.",
        "hours": "Training took {hours:.3g} hours of one {device} ({precision}; validations included); the paper's "
        "base model took 12 hours of eight P100, its big one 3.5 days.",
        "on_valid": "No test corpus was given: the figures are on valid.",
        "early": "Training ended early, for want of progress on valid.",
        "one_run": "One run with one seed ({seed}).",
        "made": "How it was made",
        "signatures": "signatures",
        "corpora": "corpora",
        "parameters": "parameters",
        "machine": "machine",
        "versions": "versions",
        "command": "command",
        "created": "date",
    },
    "zh": {
        "title": "重跑论文的表 2",
        "system": "系统",
        "german": "BLEU 英-德",
        "french": "BLEU 英-法",
        "here": "BLEU，本语料",
        "flops_german": "FLOPs 英-德",
        "flops_french": "FLOPs 英-法",
        "flops_here": "FLOPs，本次运行",
        "ours": "Heedful（{recipe}），{data}",
        "scores": "本次结果，按测试集",
        "data": "测试集",
        "sentences": "句数",
        "bleu": "BLEU（sacreBLEU，原文本）",
        "split": "拆分复合词的 BLEU（同论文的评测方式，用 13a 分词）",
        "chrf": "chrF",
        "reading": "怎样看这张表",
        "shortened": "**配方被缩短了：**只跑了 {all:,} 步中的 {steps:,} 步（{share:.3g} %）。",
        "whole": "配方的 {all:,} 步全部跑完。",
        "longer": "**运行比配方更长：**{steps:,} 步，配方为 {all:,} 步。",
        "rising": "{warmup:,} 步的预热没有走完：结束时学习率还在上升。",
        "changed": "**与配方不同之处：**{list}。",
        "unchanged": "配方的其他部分没有改动。",
        "change": "`{key}` 为 {run}，配方为 {recipe}",
        "averaged": "权重是 {count} 个检查点的平均（配方：{wanted} 个）。",
        "other_weights": "权重是“{weights}”，而不是最后 {wanted} 个检查点的平均。",
        "vocabulary": "共享词表有 {size:,} 个子词；配方要求约 {wanted:,} 个。",
        "small_vocabulary": "语料给不出所要求的 {asked:,} 个。",
        "published": "论文的数字是在 WMT 2014 上训练（英德 450 万句对，英法 3600 万句对）、在 newstest2014 上测得的。"
        "这里的结果来自 {pairs:,} 个句对和表中所列的测试集：**只有训练集和测试集都相同，才能与论文的数字并列比较。**",
        "two_kinds": "论文的 BLEU 是在分词后的文本上计算的，作者的英德评测脚本还拆开连字符复合词，"
        "这比 sacreBLEU 在原文本上的分数高，两者不能互相比较。"
        "与论文最接近的是这里的“拆分复合词的 BLEU”，即第一张表里的数字；"
        "它用 sacreBLEU 的 13a 分词，而不是 Moses 的脚本。",
        "no_split": "目标语言的词之间没有空格时，第一张表里用的是 sacreBLEU 的分数。",
        "flops": "论文的 FLOPs 是估计值：小时数 × GPU 数 × 每块 GPU 的持续算力（P100 按 9.5 TFLOP/s）。"
        "这里的（{flops:.2e}）是数出来的：{steps:,} 步的矩阵乘法，含前向和反向，也含行里的空位；"
        "这个模型跑满 {all:,} 步为 {whole:.2e}。",
        "hours": "训练用了一块 {device} 的 {hours:.3g} 小时（{precision}，含验证）；"
        "论文的 base 模型用八块 P100 训练 12 小时，big 模型 3.5 天。",
        "on_valid": "没有给出测试集：数字是验证集上的。",
        "early": "验证集上不再进步，训练提前结束。",
        "one_run": "只用一个随机种子（{seed}）跑了一次。",
        "made": "怎样得到的",
        "signatures": "签名",
        "corpora": "语料",
        "parameters": "参数量",
        "machine": "机器",
        "versions": "版本",
        "command": "命令",
        "created": "日期",
    },
}


def table(results: Results, language: str) -> tuple[list[str], list[list[str]]]:
    """The paper's rows and ours, one for each test set, as text."""
    words = WORDS[language]
    names = ("system", "german", "french", "here", "flops_german", "flops_french", "flops_here")
    rows = [
        [
            row.system,
            *(value or "–" for value in (row.bleu_german, row.bleu_french)),
            "–",
            *(cost(value) for value in (row.flops_german, row.flops_french)),
            "–",
        ]
        for row in ROWS
    ]
    for one in results["scores"]:
        nearest = one["compound_split_bleu"] or one["bleu"]
        name = words["ours"].format(recipe=results["recipe"], data=one["data"])
        rows.append([name, "–", "–", f"{nearest['value']:.1f}", "–", "–", cost(results["flops"])])
    return [words[name] for name in names], rows


def scores_table(results: Results, language: str) -> tuple[list[str], list[list[str]]]:
    """Both kinds of BLEU and chrF on each test set, with the halves of their intervals."""
    words = WORDS[language]
    rows = [
        [one["data"], f"{one['num_sentences']:,}", *map(within, (one["bleu"], one["compound_split_bleu"], one["chrf"]))]
        for one in results["scores"]
    ]
    return [words[name] for name in ("data", "sentences", "bleu", "split", "chrf")], rows


def cost(value: float | None) -> str:
    """Such as 3.3e18; a dash where there is none."""
    return "–" if value is None else f"{value:.1e}".replace("e+", "e")


def within(score: Mapping[str, Any] | None) -> str:
    """Such as 26.4 ± 0.6: half the interval in which it lies with 95 %."""
    if score is None:
        return "–"
    interval = score.get("interval")
    half = f" ± {(interval['high'] - interval['low']) / 2:.1f}" if interval else ""
    return f"{score['value']:.1f}{half}"


def remarks(results: Results, language: str) -> list[str]:
    """What a reader must know: what was shortened or changed, and what may be compared with what."""
    words = WORDS[language]
    steps, everything = results["steps"], results["steps_of_recipe"]
    numbers = {"steps": steps, "all": everything, "share": 100 * steps / everything}
    kind = "whole" if steps == everything else "shortened" if steps < everything else "longer"
    wanted = results["num_averaged_of_recipe"]
    weights = "averaged" if results["num_averaged"] is not None else "other_weights"
    asked = results["vocab_size_asked"]
    small = asked is not None and results["vocab_size"] < 0.98 * asked
    vocabulary = words["vocabulary"].format(size=results["vocab_size"], wanted=results["vocab_size_of_recipe"])
    return [
        words[kind].format(**numbers),
        *([words["early"]] if results["stopped_by"] is not None else []),
        *([words["rising"].format(warmup=results["warmup_steps"])] if steps < (results["warmup_steps"] or 0) else []),
        changes_text(results, words),
        words[weights].format(count=results["num_averaged"], weights=results["weights"], wanted=wanted),
        vocabulary + (" " + words["small_vocabulary"].format(asked=asked) if small else ""),
        *([words["on_valid"]] if results["scored_on"] == "valid" else []),
        words["published"].format(pairs=results["num_train_pairs"]),
        words["two_kinds"],
        *([words["no_split"]] if any(one["compound_split_bleu"] is None for one in results["scores"]) else []),
        words["flops"].format(**numbers, flops=results["flops"], whole=results["flops_of_all_steps"]),
        words["hours"].format(
            hours=results["hours"], device=results["machine"]["device"], precision=results["precision"]
        ),
        words["one_run"].format(seed=results["seed"]),
    ]


def changes_text(results: Results, words: Words) -> str:
    """The keys in which the run left the recipe, or that there are none."""
    changes = [words["change"].format(**change) for change in results["changed"]]
    return words["changed"].format(list="; ".join(changes)) if changes else words["unchanged"]


def markdown(results: Results, language: str) -> str:
    """The whole report as a Markdown page."""
    words, machine = WORDS[language], results["machine"]
    signatures = [one[kind] for one in results["scores"] for kind in ("bleu", "compound_split_bleu", "chrf")]
    named = dict.fromkeys(f"{one['name']} `{one['signature']}`" for one in signatures if one)
    facts = {
        "signatures": ", ".join(named),
        "corpora": ", ".join(f"{one['role']}: {one['name']} ({one['num_kept']:,})" for one in results["corpora"]),
        "parameters": f"{results['parameters']:,}",
        "machine": f"{machine['device']}; {machine['processor']}, {machine['num_cores']} cores; {machine['system']}",
        "versions": ", ".join(f"{name} {value}" for name, value in results["versions"].items()),
        "command": f"`{results['command']}`" if results["command"] else "–",
        "created": results["created"],
    }
    return "\n".join(
        [
            f"# {words['title']}\n",
            markdown_table(*table(results, language)),
            f"\n## {words['scores']}\n",
            markdown_table(*scores_table(results, language)),
            f"\n## {words['reading']}\n",
            *(f"- {text}" for text in remarks(results, language)),
            f"\n## {words['made']}\n",
            *(f"- {words[name]}: {text}" for name, text in facts.items()),
            "",
        ]
    )
