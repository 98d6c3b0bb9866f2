"""Table 4 of the paper and our own numbers, as rows, as Markdown; English or Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heedful.paper.markdown import markdown_table

PAPER_ROWS = (
    ("Vinyals & Kaiser et al. (2014)", "wsj", 88.3),
    ("Petrov et al. (2006)", "wsj", 90.4),
    ("Zhu et al. (2013)", "wsj", 90.4),
    ("Dyer et al. (2016)", "wsj", 91.7),
    ("Transformer (4 layers)", "wsj", 91.3),
    ("Zhu et al. (2013)", "semi", 91.3),
    ("Huang & Harper (2009)", "semi", 91.3),
    ("McClosky et al. (2006)", "semi", 92.1),
    ("Vinyals & Kaiser et al. (2014)", "semi", 92.1),
    ("Transformer (4 layers)", "semi", 92.7),
    ("Luong et al. (2015)", "multi", 93.0),
    ("Dyer et al. (2016)", "generative", 93.3),
)
"""Table 4: parser, training, F1 on section 23 of the Wall Street Journal."""

LANGUAGES = ("en", "zh")
WORDS = {
    "en": {
        "title": "Constituency parsing (section 6.3, Table 4)",
        "ours": "Measured here",
        "columns": ("test set", "brackets", "sentences", "F1", "precision", "recall", "F1, ≤ 40 words",
                    "all right", "crossing", "no tree"),
        "forced": "forced",
        "free": "free",
        "paper": "Table 4 of the paper: WSJ section 23",
        "paper_columns": ("parser", "training", "F1"),
        "wsj": "WSJ only, discriminative",
        "semi": "semi-supervised",
        "multi": "multi-task",
        "generative": "generative",
        "caveat": "The two tables are not comparable: the paper's numbers are of section 23 of the Wall Street Journal "
        "(trained on about 40,000 sentences of it), ours of the treebanks named here.",
        "measure": "F1 of labelled brackets as evalb counts them (COLLINS.prm): without punctuation, tags and root. "
        "A sentence without a tree counts with all its gold brackets missed. F1, precision, recall and the share of "
        "trees that are all right are in per cent; crossing is brackets a sentence.",
        "seen": "{name}: {count:,} of {total:,} test sentences also stand, word for word, in the training trees.",
    },
    "zh": {
        "title": "成分句法分析（第 6.3 节，表 4）",
        "ours": "此处测得",
        "columns": ("测试集", "括号", "句数", "F1", "精确率", "召回率", "F1（≤ 40 词）", "全对", "交叉", "无树"),
        "forced": "强制合法",
        "free": "不限制",
        "paper": "论文表 4：WSJ 第 23 节",
        "paper_columns": ("分析器", "训练", "F1"),
        "wsj": "仅 WSJ，判别式",
        "semi": "半监督",
        "multi": "多任务",
        "generative": "生成式",
        "caveat": "两张表不可比：论文的数字是《华尔街日报》第 23 节（用其中约 4 万句训练）的，我们的是上面所列树库的。",
        "measure": "带标签括号的 F1，按 evalb（COLLINS.prm）计数：不计标点、词性和根。"
        "没有得到树的句子，其标准括号全算漏掉。F1、精确率、召回率和全对比例为百分数；交叉为每句括号数。",
        "seen": "{name}：{total:,} 个测试句中有 {count:,} 句逐词出现在训练树中。",
    },
}  # fmt: skip


def our_rows(results: Mapping[str, Any], language: str) -> tuple[list[str], list[list[str]]]:
    """Heading and rows of what was measured: a row for each test set and way of decoding."""
    words: Any = WORDS[language]
    rows = []
    for test in results["tests"]:
        for way in ("forced", "free"):
            if way in test:
                rows.append([test["name"], words[way], *_figures(test[way])])
    return list(words["columns"]), rows


def _figures(scores: Mapping[str, Any]) -> list[str]:
    whole, short = scores["all"], scores["short"]
    shares = [f"{whole[name]:.1f}" for name in ("f1", "precision", "recall")]
    return [
        f"{whole['num_sentences']:,}",
        *shares,
        f"{short['f1']:.1f}",
        f"{whole['exact']:.1f}",
        f"{whole['crossing']:.2f}",
        f"{whole['num_failed']:,}",
    ]


def paper_rows(language: str) -> tuple[list[str], list[list[str]]]:
    """Heading and rows of the paper's table."""
    words: Any = WORDS[language]
    return list(words["paper_columns"]), [[name, words[kind], f"{f1:.1f}"] for name, kind, f1 in PAPER_ROWS]


def remarks(results: Mapping[str, Any], language: str) -> list[str]:
    """What must be known to read the numbers."""
    words: Any = WORDS[language]
    seen = []
    for test in results["tests"]:
        whole = (test.get("forced") or test["free"])["all"]
        counts = {"count": test["num_seen_in_training"], "total": whole["num_sentences"]}
        seen.append(words["seen"].format(name=test["name"], **counts))
    return [words["caveat"], words["measure"], *seen]


def markdown(results: Mapping[str, Any], language: str) -> str:
    """The page table4.md."""
    words: Any = WORDS[language]
    parts = [
        f"# {words['title']}",
        f"## {words['ours']}",
        markdown_table(*our_rows(results, language), names=2),
        f"## {words['paper']}",
        markdown_table(*paper_rows(language), names=2),
        "\n".join(f"- {remark}" for remark in remarks(results, language)),
    ]
    if results.get("command"):
        parts.append(f"```bash\n{results['command']}\n```")
    return "\n\n".join(parts) + "\n"
