"""Print docs/paper/results.md: what came out when the paper's experiments were run, out of their result files.

    python .ci/paper_results_page.py > docs/paper/results.md

Every number of the page is read or computed from benchmarks/results/paper/*.json, where machine, versions and command stand
too. A test compares the page with what this prints.
"""
# ruff: noqa: E501

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "paper"
sys.path.insert(0, str(ROOT))

from heedful.paper import compare_report, table2, table3_report, table4  # noqa: E402
from heedful.paper.markdown import markdown_table  # noqa: E402

Results = dict[str, Any]

INTRODUCTION = """\
# What came out

The experiments of [this folder](README.md), run on a GPU. Every number is read from the result files in
[`benchmarks/results/paper/`](../../benchmarks/results/paper/), which hold machine, versions and command;
`python .ci/paper_results_page.py > docs/paper/results.md` makes this page, and a test compares the two.

Where a run contradicts what the paper says, or what is often said after it, a paragraph marked **Contradicted** says so; **not
seen** is an effect that did not rise above the noise. One machine, small corpora and short runs: such a paragraph tells what was
seen here, not that the paper is wrong about WMT."""


def main() -> None:
    """Print the page."""
    found = {
        path.name.split("_")[0]: (path, json.loads(path.read_text("utf-8"))) for path in sorted(RESULTS.glob("*.json"))
    }
    sections = {
        "table1": layers,
        "compare": systems,
        "table2": recipe,
        "table3": ablations,
        "table4": parsing,
        "parsing": parsers,
    }
    parts = [INTRODUCTION]
    for name, write in sections.items():
        path, results = found[name]
        parts.append(
            write(results)
            + f"\n\nNumbers: [`{path.name}`](../../benchmarks/results/paper/{path.name}). {made(results)}".rstrip()
        )
    sys.stdout.write("\n\n".join(parts) + "\n")


def made(results: Results) -> str:
    """Where and how; nothing if the section says it itself."""
    if "command" not in results:
        return ""
    machine = results.get("machine") or results["device"]
    device = machine.get("device") or machine["name"]
    versions = results["versions"]
    return f"Made by `{results['command']}` on {device}, torch {versions['torch']}, heedful {versions['heedful']}."


# ---------------------------------------------------------------------- Table 1


def layers(results: Results) -> str:
    """What four kinds of layer cost."""
    seconds = {(point["layer"], point["n"], point["d"]): point["seconds"] for point in results["points"]}
    kinds = list(results["exponents"])
    widths, lengths = results["sweep"]["widths"], results["sweep"]["lengths"]
    narrow, wide, long = widths[0], widths[-1], lengths[-1]
    shown = [n for n in lengths if n in (16, 64, 256, 1024, 4096)]
    rows = [
        [f"{kind.replace('_', ' ')}, d = {d}", *(f"{seconds[kind, n, d] * 1e3:.2f}" for n in shown)]
        for kind in kinds
        for d in (narrow, wide)
    ]
    powers = [
        [
            kind.replace("_", " "),
            results["theory"][kind]["complexity"],
            *(power(results["exponents"][kind][name]) for name in ("flops_mixing", "flops", "seconds", "memory_bytes")),
            *(f"n^{abs(results['exponents'][kind][name][0]):.2f}" for name in ("operations", "path")),
        ]
        for kind in kinds
    ]
    heading = [
        "layer",
        "theory",
        "operations, mixing",
        "operations, whole",
        "time",
        "memory",
        "one after another",
        "path",
    ]
    operations = {(point["layer"], point["n"], point["d"]): point["flops"] for point in results["points"]}
    fewer = {
        (n, d) for n in lengths for d in widths if operations["self_attention", n, d] < operations["recurrent", n, d]
    }
    assert fewer == {(n, d) for n in lengths for d in widths if n < d}, "the page says so"
    slower = [n for n in lengths if seconds["self_attention", n, narrow] > seconds["recurrent", n, narrow]]
    beyond = [d for d in widths if all(seconds["self_attention", n, d] < seconds["recurrent", n, d] for n in lengths)]
    kernel = results["sweep"]["kernel_size"]
    ratio = seconds["recurrent", long, wide] / seconds["convolutional", long, wide]
    return f"""\
## Table 1: layers

Fitted powers of the length n and the width d, over the upper half of the lengths:

{markdown_table(heading, powers)}

Milliseconds of a forward pass of one sentence (batch 1):

{markdown_table(["layer", *(f"n = {n}" for n in shown)], rows)}

![Table 1, measured](images/table1.png)

Operations and what must wait come out as the theory says, and so do paths: the convolution's grows with n, as the paper says of contiguous
kernels below its table; the log_k n that stands in it needs dilated ones. Time does not follow: one sentence does not fill a GPU of this
size, and until it does, every layer but the recurrent one takes the time of starting its kernels. Nor is the recurrent layer's power of d a slope:
at n = {long} it took {", ".join(f"{seconds['recurrent', long, d] * 1e3:.1f}" for d in widths)} ms for d = {", ".join(map(str, widths))}, one step up and then the same.

**Seen in operations, not in time: "self-attention layers are faster than recurrent layers when the sequence length n is smaller than the
representation dimensionality d"** (section 4, "in terms of computational complexity"). Whole layers, projections and gates included, cross over
exactly there: at every length and width measured, attention takes fewer operations than the GRU if and only if n < d. In seconds the border is
elsewhere: at d = {" and ".join(map(str, beyond))} attention was faster at every length, also far beyond n = d; at d = {narrow} it was slower at n = {", ".join(map(str, slower))},
among them {" and ".join(str(n) for n in slower if n < narrow)}, which are smaller than d. On this device it matters more how many steps wait for each other and how many kernels are started.

**Contradicted for gated layers: "convolutional layers are generally more expensive than recurrent layers, by a factor of k"** (section 4). That
holds for one d × d matrix a step against k of them. A GRU has six (three gates, each from two inputs), a gated convolution 2·k, so with k = {kernel}
both cost the same operations. In time the GRU took {ratio:.0f} times as long at n = {long}, d = {wide}, since its steps wait for each other."""


def power(exponents: list[float]) -> str:
    """Such as n^2.00 d^1.00."""
    return f"n^{exponents[0] + 0.0:.2f} d^{exponents[1] + 0.0:.2f}"


# ---------------------------------------------------------------------- the rivals


def systems(results: Results) -> str:
    """The Transformer beside recurrence and convolution."""
    heading, rows = compare_report.table(results, "en")
    by_name = {one["name"]: one for one in results["systems"]}
    transformer, gru, lstm, convolution = (
        by_name[name] for name in ("transformer", "recurrent", "recurrent-lstm-dot", "convolutional")
    )
    tests = [score["data"].split(" + ")[0].split("/")[-1].removesuffix(".en") for score in transformer["scores"]]
    bleu = [
        [name, *(f"{score['value']:.1f}" for score in one["scores"])] for name, one in by_name.items()
    ]  # fmt: skip
    notes = "\n".join(f"- {text}" for text in compare_report.remarks(results, "en"))
    first = [one["scores"][0]["value"] for one in (transformer, convolution, lstm, gru)]
    interval = transformer["scores"][0]["interval"]
    half = (interval["high"] - interval["low"]) / 2
    learning = [
        transformer["training_tokens_per_second"] / one["training_tokens_per_second"]
        for one in (gru, lstm, convolution)
    ]
    decoding = lstm["decoding_tokens_per_second"] / transformer["decoding_tokens_per_second"]
    own = transformer["settings"]["model"]
    layers_of = [one["settings"]["model"]["num_decoder_layers"] for one in (lstm, transformer)]
    second = [one["scores"][1]["value"] for one in (transformer, convolution, gru)]
    return f"""\
## The Transformer and its rivals

Multi30k, English to German, {results["num_train_pairs"]:,} pairs; the same batches, epochs, learning rates and, nearly, number of parameters for all.
The recipe is that of the Transformer in [`configs/multi30k.yaml`](../../configs/multi30k.yaml), shorter and without R-Drop; nothing was tuned for the rivals but their depth. The
Transformer is not the paper's: it has {own["positions"]} positions, {own["activation"]} and a little dropout on attention and inside its feed-forward layers. The first test set is {tests[0]}.

{markdown_table(heading, rows)}

{markdown_table(["BLEU", *tests], bleu)}

{notes}

![BLEU, speed, memory](images/compare_summary.png)

![Loss over time](images/compare_loss_over_time.png)

The rivals are where the literature has them (recurrent models about 33 to 36 BLEU on {tests[0]}), or above, with label smoothing and a moving average
that their papers did not have. As the abstract says, the Transformer takes less time to train: {min(learning):.1f} to {max(learning):.1f} times as many tokens a second.

**Not seen: "superior in quality"** (abstract). All four attend to the source; the Transformer alone attends to its own side. On so little text, with equal
parameters, that makes no difference that one run could show: {first[0]:.1f} for the Transformer, {first[1]:.1f} for the convolutional model, {first[2]:.1f} for the LSTM with Luong's
attention, each ± {half:.1f}, and on {tests[1]} the convolutional model has {second[1]:.1f} against {second[0]:.1f}. The GRU with Bahdanau's attention has the lowest figure on both ({first[3]:.1f}
and {second[2]:.1f}). What self-attention bought here is time.

**Contradicted: that the Transformer is faster,** as is often said. The paper says it of training. In decoding, where every model goes token by token, the LSTM made
{decoding:.1f} times as many tokens a second. It has {layers_of[0]} decoder layers and a state of one size; the Transformer has {layers_of[1]}, each of several small kernels, and looks back at
all it has written. Which of these weighs most was not measured."""


# ---------------------------------------------------------------------- Table 3


def ablations(results: Results) -> str:
    """Every row of Table 3."""
    page = table3_report.markdown(results, "en").split("\n", 2)[2].strip()
    rows = {row["name"]: row for row in results["rows"]}

    def both(name: str) -> str:
        row = rows[name]
        return f"perplexity {spread(row['perplexity'], 2)}, BLEU {spread(row['bleu'], 1)}"

    def paper(name: str) -> str:
        found = rows[name]["paper"]
        return f"perplexity {found['perplexity']:.2f}, BLEU {found['bleu']:.1f}"

    return f"""\
## Table 3: what matters in the model

{page.replace("## ", "### ")}

![Differences from the base, the paper's and ours](images/table3.png)

All {sum(len(row["runs"]) for row in results["rows"])} runs together took {results["seconds"] / 60:.1f} minutes.

The base: {both("base")}.

**Not seen: a single head is worse.** {both("A-heads-1")}: within the noise of {len(results["seeds"])} seeds.

**Contradicted: four heads are worse than eight, sixteen as good.** Four have the lower perplexity here ({both("A-heads-4")}), sixteen the higher
({both("A-heads-16")}). The paper has {paper("A-heads-4")} and {paper("A-heads-16")}, against {paper("base")}. The base here is half as wide, so its eight heads have keys of {rows["base"]["values"]["key_dim"]}; four have {rows["A-heads-4"]["values"]["key_dim"]}, the size of the paper's
base. Small keys are worse, as in the paper: the size of a head may matter more than their number.

**Contradicted: deeper is better,** in perplexity. A third more layers than the base: {both("C-layers-8")}. The paper has {paper("C-layers-8")} against {paper("base")}: better in perplexity, not in BLEU.
Post-norm stacks are known to learn more slowly the deeper they are, and a run of {results["budget"]["steps"]:,} steps may end before that is made up; fewer layers are worse, as in the paper.

**Contradicted: learned positions are as good as sinusoidal ones.** {both("E-learned")}. A learned position must be met to be learned, and the
sinusoids know all positions from the start; after the paper's 100,000 steps that may be made up.

**Not seen: label smoothing helps BLEU.** Without it {both("D-smoothing-0.0")}: perplexity is better without, as in the paper, and BLEU neither better nor worse
beyond the noise.

**Seen: dropout helps,** in perplexity. Without it {both("D-dropout-0.0")}. More of it hurts, as in the paper, but far more than there: with 0.2 {both("D-dropout-0.2")}
(the paper: {paper("D-dropout-0.2")}). A run this short has little time to learn by heart."""


def spread(found: Results, digits: int) -> str:
    """Mean ± standard deviation."""
    return f"{found['mean']:.{digits}f} ± {found['deviation']:.{digits}f}"


# ---------------------------------------------------------------------- Table 4


def parsing(results: Results) -> str:
    """Parsing as text to text."""
    heading, rows = table4.our_rows(results, "en")
    minutes = results["settings"]["training"]["minutes"]
    free = [test["free"] for test in results["tests"]]
    num_failed, num_all = (sum(one["all"][name] for one in free) for name in ("num_failed", "num_sentences"))
    wrong, miscounted = (
        sum(one["problems"].get(name, 0) for one in free) for name in ("wrong bracket", "other number of words")
    )
    seen = " and ".join(f"{one['num_seen_in_training']} sentences of {one['name']}" for one in results["tests"])
    return f"""\
## Table 4: parsing

Trained on the treebanks {" and ".join(one["name"].split("-")[0].upper() for one in results["tests"])} together: {results["steps"]:,} steps in {minutes:g} minutes, while the GPU had five other runs to do.

{markdown_table(heading, rows)}

Not comparable with the paper's 91.3 on the Wall Street Journal: other text and fewer trees. {seen} also stand in the training data.
Forced brackets are what makes a text-to-text parser usable: without them {failed_share(num_failed, num_all)} of the sentences got no tree, {wrong} of these {num_failed} for a bracket that closes what is
not open, {miscounted} for a wrong number of words."""


def failed_share(num_failed: int, num_all: int) -> str:
    """Such as 11%."""
    return f"{num_failed / num_all:.0%}"


def parsers(results: Results) -> str:
    """Five recipes for a parser beside each other."""
    runs = results["runs"]
    heading = [
        "words as",
        "R-Drop",
        "dropout",
        "steps",
        "F1 on valid",
        *(f"{one['name']}" for one in runs["index"]["tests"]),
        "no tree when free",
    ]
    rows = [
        [
            run["words"],
            "no" if "r_drop=0" in run["command"] else "yes",
            "0.2" if "dropout=0.2" in run["command"] else "0.3",
            f"{run['steps']:,}",
            f"{run['valid_f1']:.1f}",
            *(f"{test['forced']['all']['f1']:.1f}" for test in run["tests"]),
            f"{sum(test['free']['all']['num_failed'] for test in run['tests']):,}",
        ]
        for run in runs.values()
    ]
    best = max(runs.values(), key=lambda run: run["valid_f1"])
    assert best is runs["index-d02"], "the table above is of the recipe that is best on valid"
    gain = [
        runs["index"]["tests"][place]["forced"]["all"]["f1"] - runs["xx"]["tests"][place]["forced"]["all"]["f1"]
        for place in (0, 1)
    ]
    counted = {
        name: sum(test["free"]["problems"].get("other number of words", 0) for test in runs[name]["tests"])
        for name in ("xx", "tags", "index")
    }
    commands = "\n".join(run["command"] for run in runs.values())
    versions = best["versions"]
    return f"""\
### What stands for a word, and what else

The same command with other settings, all at the same time on one GPU; F1 with forced brackets. The first row is the one above, chosen on valid.

{markdown_table(heading, rows)}

**A number for each word instead of the paper's `XX`** is worth {min(gain):.1f} to {max(gain):.1f} points of F1, the largest step here. With `XX` the parser must count: in the free search {counted["xx"]}
trees had a wrong number of words, with tags {counted["tags"]}, with numbers {counted["index"]}. R-Drop comes next. One run each, so that dropout 0.2 and 0.3 are equal.

On {best["machine"]["device"]}, torch {versions["torch"]}, heedful {versions["heedful"]}; a dropout of 0.3 was the default then, 0.2 is it now:

```bash
{commands}
```"""


# ---------------------------------------------------------------------- Table 2


def recipe(results: Results) -> str:
    """The published recipe, shortened."""
    heading, rows = table2.scores_table(results, "en")
    share = results["steps"] / results["steps_of_recipe"]
    score = results["scores"][0]["bleu"]
    return f"""\
## Table 2: the recipe

The base recipe as published on Multi30k, cut to {results["hours"] * 60:.0f} minutes of a GPU that had five other runs to do: {results["steps"]:,} of {results["steps_of_recipe"]:,} steps ({share:.1%}), all of them inside
the {results["warmup_steps"]:,} steps of warm-up. It shows that the command does what it says, and nothing about the recipe.

{markdown_table(heading, rows)}

What the paper's recipe is not made for shows: {results["num_train_pairs"]:,} pairs, seen {results["epochs"]:.0f} times by {results["parameters"] / 1e6:.0f} M parameters with dropout 0.1, give {score["value"]:.1f} BLEU;
[`configs/multi30k.yaml`](../../configs/multi30k.yaml), a smaller model with more dropout, has [far more](../../benchmarks/results/multi30k_2026-11-15_h200.md) from the same pairs in less time."""


if __name__ == "__main__":
    main()
