"""`heedful compare`: one corpus, one budget, several systems; measurements, output, resuming and errors."""

from __future__ import annotations

import json
import random
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from heedful.build_model import build_model
from heedful.cli.compare import print_table
from heedful.config import ModelConfig
from heedful.config_loading import build_config
from heedful.errors import ConfigError
from heedful.paper.compare import compare, make_plan
from heedful.paper.compare_quality import MIN_SENTENCES, QUALITY_WORDS, analyse, length_buckets, write_translations
from heedful.paper.compare_report import LANGUAGES, WORDS, html_page, markdown_page, remarks, table
from heedful.paper.plot_style import in_language
from heedful.paper.profiling import (
    MAX_PASSES,
    MemoryUsage,
    decode,
    measure_memory,
    read_training_curves,
    resident_bytes,
)
from heedful.paper.svg_charts import Line, bar_chart, line_chart, tick_label, ticks, without_steep_start
from heedful.paper.systems import TOLERANCE, UNUSED_KEYS, differences, matching_width, num_parameters_of, parse_systems
from heedful.text.preflight import TrainingPair

STEPS = 8
TINY = (
    "--preset tiny --device cpu --model.d_model=64 --model.d_ff=96 --model.num_heads=2 --model.num_encoder_layers=1 "
    "--model.num_decoder_layers=1 --training.tokens_per_step=512 --training.num_bleu_sentences=0 "
    "--training.tensorboard=false --training.validate_every=4 --decoding.max_length=12"
).split()


def program(*arguments: object) -> int:
    """Run the program inside this process and return its exit code."""
    from heedful.cli import main

    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A corpus of digits and the same digits reversed, as flags."""
    folder, drawn = tmp_path_factory.mktemp("digits"), random.Random(1)
    found = {" ".join(drawn.choice("0123456789") for _ in range(drawn.randint(2, 6))) for _ in range(500)}
    sources = sorted(text for text in found if text != text[::-1])
    for name, part in (("train", sources[20:]), ("test", sources[:20])):
        (folder / f"{name}.aa").write_text("".join(f"{text}\n" for text in part))
        (folder / f"{name}.bb").write_text("".join(f"{text[::-1]}\n" for text in part))
    flags = {"source": "train.aa", "target": "train.bb", "test-source": "test.aa", "test-target": "test.bb"}
    return [text for flag, name in flags.items() for text in (f"--{flag}", str(folder / name))]


@pytest.fixture(scope="module")
def finished(corpus: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One comparison of three systems, shared by the tests that only read it."""
    output = tmp_path_factory.mktemp("compared") / "out"
    assert program("compare", *corpus, *TINY, "--steps", STEPS, "-o", output, "--quiet") == 0
    return output


def results_of(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "results.json").read_text("utf-8"))
    return found


# ---- one comparison --------------------------------------------------------------------------------------------------


def test_comparison_results_are_complete(finished: Path) -> None:
    results = results_of(finished)
    assert results["complete"] is True
    assert (results["equal"], results["reference"], results["budget"]) == (
        "parameters",
        "transformer",
        {"steps": STEPS},
    )
    assert results["seed"] == 1 and results["versions"]["torch"] and results["machine"]["device"] == "CPU"
    assert results["command"].startswith("heedful")
    assert [one["name"] for one in results["systems"]] == ["transformer", "recurrent", "convolutional"]
    for one in results["systems"]:
        assert one["steps"] == STEPS and one["tokens"] > 0 and one["minutes"] > 0 and one["valid_loss"] > 0
        assert one["training_tokens_per_second"] > 0 and one["decoding_tokens_per_second"] > 0
        assert [score["num_sentences"] for score in one["scores"]] == [20]
        assert 0 <= one["scores"][0]["value"] <= 100 and "tok:" in one["scores"][0]["signature"]
        assert one["memory_kind"] == ("resident_memory_growth" if resident_bytes() else "not_measured")
        train, valid = one["curves"]["train"], one["curves"]["valid"]
        assert [point["step"] for point in train] == list(range(1, STEPS + 1))
        assert [point["step"] for point in valid] == [4, 8]
        assert valid[0]["tokens"] == train[3]["tokens"] and valid[1]["seconds"] == train[7]["seconds"]
        assert (finished / one["name"] / "model.safetensors").exists()


def test_systems_have_matching_parameters(finished: Path) -> None:
    from heedful.build_model import num_parameters
    from heedful.model_dir import load_model

    systems = results_of(finished)["systems"]
    for one in systems:
        loaded = load_model(finished / one["name"])
        assert num_parameters(loaded.model) == one["parameters"]
        assert loaded.config.model.d_model == one["width"]
        assert abs(one["parameters"] / systems[0]["parameters"] - 1) <= TOLERANCE
    recurrent = systems[1]["settings"]["model"]
    assert (recurrent["cell"], recurrent["attention_scoring"]) == ("gru", "additive")


def test_systems_train_on_same_tokens(finished: Path) -> None:
    assert len({one["tokens"] for one in results_of(finished)["systems"]}) == 1
    assert (finished / "data" / "prepared.json").exists()
    assert not list(finished.glob("*/training/data"))


class Fetches(HTMLParser):
    """Everything in a page that would make a browser send a request or run a script."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = {"src", "href", "srcset", "data", "xlink:href", "poster"}
        self.found += [f"{tag} {name}" for name, _ in attrs if name in named]
        self.found += [tag] if tag in ("script", "link", "iframe", "object", "embed") else []


@pytest.mark.parametrize("language", LANGUAGES)
def test_html_report_is_self_contained(finished: Path, language: str) -> None:
    page = html_page(results_of(finished), language)
    if language == "en":
        assert page == (finished / "report.html").read_text("utf-8")
    reader = Fetches()
    reader.feed(page)
    assert reader.found == []
    assert not re.search(r"https?://|url\(|@import", page)
    assert reader.tags.count("svg") == 8 and reader.tags.count("table") == 5
    assert "prefers-color-scheme: dark" in page
    assert WORDS[language]["over_time"] in page and f'lang="{"zh-CN" if language == "zh" else "en"}"' in page


# ---- quality by length, paired tests, samples ------------------------------------------------------------------------


def quality_of(
    texts: dict[str, list[str]], pairs: list[TrainingPair], lengths: list[int], bounds: tuple[int, ...], folder: Path
) -> dict[str, Any]:
    """The analysis of given translations, with given lengths in place of a tokenizer's."""
    for name, lines in texts.items():
        write_translations(folder, name, lines)
    ids = {pair.source: [0] * (count + 1) for pair, count in zip(pairs, lengths, strict=True)}
    encode = SimpleNamespace(tags=(), encode_sources=lambda sources, language: [ids[source] for source in sources])
    source = SimpleNamespace(lengths=lambda indices: np.array(lengths)[indices] + 1)
    prepared: Any = SimpleNamespace(
        test_pairs=pairs,
        valid_pairs=[],
        tokenizer=encode,
        report={"corpora": [{"role": "test", "name": "digits"}]},
        train=type("Train", (), {"source": source, "__len__": lambda self: len(lengths)})(),
    )
    return analyse(folder, prepared, list(texts), target_language="de", bounds=bounds)


def lines_of_words(num_lines: int, *, seed: int = 1) -> list[TrainingPair]:
    drawn = random.Random(seed)
    texts = [" ".join(drawn.choice("abcdefghij") * 3 for _ in range(5 + number % 40)) for number in range(num_lines)]
    return [TrainingPair(f"{number} {text}", text, 0, None) for number, text in enumerate(texts)]


def test_quality_by_length_finds_system_that_fails_on_long_sentences(tmp_path: Path) -> None:
    pairs = lines_of_words(200)
    lengths = [len(pair.target.split()) for pair in pairs]
    right = [pair.target for pair in pairs]
    forgetful = [" ".join(text.split()[:20]) for text in right]  # never more than 20 words
    quality = quality_of({"right": right, "forgetful": forgetful}, pairs, lengths, (10, 20, 30), tmp_path)
    [one] = quality["sets"]
    assert [(item["low"], item["high"]) for item in one["buckets"]] == [(1, 10), (11, 20), (21, 30), (31, None)]
    assert sum(item["num_sentences"] for item in one["buckets"]) == 200
    first, second, third, last = [item["systems"][1] for item in one["buckets"]]
    assert [item["systems"][0]["bleu"]["value"] for item in one["buckets"]] == pytest.approx([100] * 4)
    for exact in (first, second):
        assert exact["bleu"]["value"] == pytest.approx(100) and exact["length_ratio"] == 1
        assert exact["bleu"]["p_value"] == 1 and exact["bleu"]["difference"] == pytest.approx(0)
    assert last["bleu"]["value"] < third["bleu"]["value"] < 95 and last["length_ratio"] < third["length_ratio"] < 1
    assert last["bleu"]["p_value"] < 0.05 and last["bleu"]["interval"]["high"] < 90 and last["chrf"]["value"] < 95
    assert quality["train_lengths"]["longest"] == max(lengths)


def test_samples_show_lengths_and_largest_differences(tmp_path: Path) -> None:
    pairs = lines_of_words(100)
    lengths = [len(pair.target.split()) for pair in pairs]
    right = [pair.target for pair in pairs]
    wrong = [*right[:30], "zzz", *right[31:]]
    samples = quality_of({"right": right, "wrong": wrong}, pairs, lengths, (20,), tmp_path)["samples"]
    assert [item["kind"] for item in samples] == ["short", "medium", "long", *["disputed"] * 3]
    assert samples[0]["length"] < samples[1]["length"] < samples[2]["length"]
    assert samples[3]["source"] == pairs[30].source and samples[3]["reference"] == pairs[30].target
    assert [one["text"] for one in samples[3]["systems"]] == [right[30], "zzz"]
    again = quality_of({"right": right, "wrong": wrong}, pairs, lengths, (20,), tmp_path)["samples"]
    assert again == samples


def test_small_length_buckets_are_merged() -> None:
    lengths = [5] * 30 + [15] * 3 + [25] * 40 + [95] * 2
    found = length_buckets(range(len(lengths)), lengths, (10, 20, 30, 90))
    assert [(low, high, len(indices)) for low, high, indices in found] == [(1, 10, 30), (11, None, 45)]
    assert length_buckets([0, 1], lengths, (10,)) == [(1, None, [0, 1])]
    assert MIN_SENTENCES == 25


def test_report_shows_quality_and_samples(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = results_of(finished)
    sample = results["quality"]["samples"][0]
    for language in LANGUAGES:
        page, text = html_page(results, language), markdown_page(results, language)
        for words in (in_language(QUALITY_WORDS, language)[name] for name in ("by_length", "tests", "samples")):
            assert f"<h2>{words}</h2>" in page and f"## {words}" in text
        assert sample["source"] in page and f": {sample['reference']}" in text
        assert f"| 1+ | 20 | {results['quality']['sets'][0]['systems'][0]['bleu']['value']:.1f}" in text
    assert (finished / "report.md").read_text("utf-8") == markdown_page(results, "en")
    print_table(results, "zh")
    assert "按源句长度划分的质量" in capsys.readouterr().out


def test_resume_repeats_analysis_with_other_buckets(finished: Path, corpus: list[str], tmp_path: Path) -> None:
    copy = tmp_path / "out"
    shutil.copytree(finished, copy)
    command = ["compare", *corpus, *TINY, "--steps", STEPS, "-o", copy, "--resume", "--quiet", "--no-plots"]
    assert program(*command, "--length-buckets", "3,x") == 2
    assert program(*command, "--length-buckets", "30,20") == 2
    assert program(*command, "--length-buckets", "3,5") == 0
    assert results_of(copy)["systems"] == results_of(finished)["systems"]


def test_busy_machine_is_reported(finished: Path) -> None:
    results = results_of(finished)
    shares = dict(zip(("transformer", "recurrent", "convolutional"), (0.42, 1.7, None), strict=True))
    assert all(one["cpu_share"] > 0 for one in results["systems"])
    for one in results["systems"]:
        one["cpu_share"] = shares[one["name"]]
    for language, words in (("en", "The machine was busy"), ("zh", "机器繁忙")):
        [found] = [text for text in remarks(results, language) if words in text]
        assert "transformer 42%" in found and "recurrent" not in found and "convolutional" not in found
    results["systems"][0]["cpu_share"] = 1.0
    assert not any("busy" in text for text in remarks(results, "en"))


def test_results_without_analysis_are_reported(finished: Path) -> None:
    """Results of earlier versions have no analysis; the report leaves its sections out."""
    results = {key: value for key, value in results_of(finished).items() if key != "quality"}
    page = html_page(results, "en")
    assert QUALITY_WORDS["samples"][0] not in page and QUALITY_WORDS["samples"][0] not in markdown_page(results, "en")


def test_comparison_plots_are_png(finished: Path) -> None:
    for name in ("loss_over_tokens", "loss_over_time", "quality_by_length", "summary"):
        content = (finished / f"{name}.png").read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) > 5_000


def test_resume_keeps_finished_systems(
    finished: Path, corpus: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: object, **named: object) -> None:
        raise AssertionError("a finished system was trained again")

    monkeypatch.setattr("heedful.paper.compare.train", never)
    before = results_of(finished)["systems"]
    command = ["compare", *corpus, *TINY, "--steps", STEPS, "-o", finished, "--resume"]
    assert program(*command) == 0
    printed = capsys.readouterr()
    heading, *rows = printed.out.splitlines()
    assert "BLEU" in heading and [row.split()[0] for row in rows[:3]] == ["transformer", "recurrent", "convolutional"]
    assert printed.err.count("already finished") == 3
    assert program(*command, "--json", "--quiet", "--no-plots") == 0
    assert json.loads(capsys.readouterr().out)["systems"] == before == results_of(finished)["systems"]


def test_existing_output_is_not_replaced(
    finished: Path, corpus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("compare", *corpus, *TINY, "--steps", STEPS, "-o", finished) == 2
    assert "--resume" in capsys.readouterr().err
    (tmp_path / "precious").write_text("mine")
    assert program("compare", *corpus, *TINY, "--steps", STEPS, "-o", tmp_path, "--overwrite") == 2
    assert "precious" in capsys.readouterr().err
    other = ["--data.max_characters=9", "--resume"]
    assert program("compare", *corpus, *TINY, "--steps", STEPS, "-o", finished, *other) == 2
    assert "other files or settings" in capsys.readouterr().err


def test_interrupted_comparison_is_resumed(corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal during the second system ends the comparison; --resume trains only the remaining systems."""
    from heedful import training_pipeline

    trained: list[str] = []

    def stopped_in_second(request: dict[str, Any], **named: Any) -> training_pipeline.TrainingResult:
        trained.append(Path(request["output"]).name)
        ended = training_pipeline.train(request, **named)
        return replace(ended, stopped_by="SIGINT") if len(trained) == 2 else ended

    monkeypatch.setattr("heedful.paper.compare.train", stopped_in_second)
    systems = "recurrent-lstm-dot,convolutional-kernel2"
    command = ["compare", *corpus, *TINY, "--steps", 2, "-o", tmp_path / "out", "--quiet", "--systems", systems]
    assert program(*command) == 130
    assert results_of(tmp_path / "out")["complete"] is False
    assert program(*command, "--resume", "--no-plots") == 0
    assert trained == ["recurrent-lstm-dot", "convolutional-kernel2", "convolutional-kernel2"]
    first, second = results_of(tmp_path / "out")["systems"]
    assert first["settings"]["model"]["cell"] == "lstm" and second["settings"]["model"]["kernel_size"] == 2
    assert not (tmp_path / "out" / "summary.png").exists()


def test_resumed_comparison_keeps_training_memory(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After Ctrl-C at the last update, the second run trains nothing, so it keeps the memory of the first."""
    from heedful.paper import compare as comparison

    measure, taken = comparison.measure, iter((5_000_000, 1_000))

    @contextmanager
    def text(device: torch.device) -> Iterator[MemoryUsage]:
        yield MemoryUsage(next(taken), "resident_memory_growth")

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "measure_memory", text)
    monkeypatch.setattr(comparison, "measure", interrupted)
    command = ["compare", *corpus, *TINY, "--steps", 2, "-o", tmp_path / "out", "-q", "--systems", "transformer"]
    assert program(*command) == 130
    monkeypatch.setattr(comparison, "measure", measure)
    capsys.readouterr()
    assert program(*command, "--resume", "--no-plots") == 0
    assert capsys.readouterr().out == ""  # quiet
    results = results_of(tmp_path / "out")
    assert [one["memory_bytes"] for one in results["systems"]] == [5_000_000] and "unfinished" not in results


def test_equal_minutes_keeps_presets(corpus: list[str], tmp_path: Path) -> None:
    flags = ["--minutes", 0.01, "--systems", "transformer,convolutional", "--lang", "zh", "--quiet", "--no-plots"]
    assert program("compare", *corpus[:4], *TINY, *flags, "-o", tmp_path / "out") == 0
    results = results_of(tmp_path / "out")
    assert (results["equal"], results["scored_on"]) == ("minutes", "valid")
    assert [one["width"] for one in results["systems"]] == [64, 64]
    assert WORDS["zh"]["on_valid"] in (tmp_path / "out" / "report.html").read_text("utf-8")


# ---- settings of one system ----

OWN = """
systems:
  transformer:
  recurrent-lstm-dot:
    training: {learning_rate: 0.0005}
    model: {num_decoder_layers: 2, dropout: 0.3}
"""


def test_settings_of_one_system(corpus: list[str], tmp_path: Path) -> None:
    """The file names the systems; settings of one system apply only to it and are in the results."""
    file = tmp_path / "systems.yaml"
    file.write_text(OWN)
    command = ["compare", file, *corpus, *TINY, "--model.dropout=0.2", "--steps", 2, "-o", tmp_path / "out"]
    assert program(*command, "--quiet", "--no-plots") == 0
    first, second = results_of(tmp_path / "out")["systems"]
    assert (first["name"], second["name"]) == ("transformer", "recurrent-lstm-dot")
    assert first["settings"]["training"]["learning_rate"] == 3e-3 and first["settings"]["model"]["dropout"] == 0.2
    assert second["settings"]["training"]["learning_rate"] == 5e-4
    assert second["settings"]["model"]["num_encoder_layers"] == 1 and second["settings"]["model"]["dropout"] == 0.3
    assert abs(second["parameters"] / first["parameters"] - 1) <= TOLERANCE
    assert first["differs"] == {}
    assert second["differs"] == {
        "model.num_decoder_layers": 2,
        "model.attention_scoring": "dot",
        "model.cell": "lstm",
        "model.dropout": 0.3,
        "training.learning_rate": 5e-4,
    }
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert WORDS["en"]["differs"] in page and "training.learning_rate 0.0005" in page
    assert program(*command, "--quiet", "--no-plots", "--systems", "recurrent", "--overwrite") == 0
    [only] = results_of(tmp_path / "out")["systems"]
    assert only["name"] == "recurrent" and only["settings"]["training"]["learning_rate"] == 3e-3


def test_recurrent_default_depth() -> None:
    for name, shared, layers in (
        ("recurrent", {}, (2, 2)),
        ("recurrent-lstm-dot", {"model": {"num_encoder_layers": 4}}, (4, 2)),
        ("transformer", {}, (6, 6)),
    ):
        [system] = parse_systems([name])
        model = build_config(system.request(shared), "base").model
        assert (model.num_encoder_layers, model.num_decoder_layers) == layers
    [system] = parse_systems(["recurrent"], {"recurrent": {"training": {"learning_rate": 1e-3}}})
    training = build_config(system.request({"training": {"learning_rate_factor": 2.0}}), "base").training
    assert (training.learning_rate, training.learning_rate_factor) == (1e-3, None)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"recurent": None}, ["systems", "'recurrent'"]),
        (["transformer", "recurrent"], ["systems", "expected names"]),
        ({"recurrent": 3}, ["systems.recurrent", "training"]),
        ({"recurrent": {"trainig": {}}}, ["systems.recurrent.trainig", "'training'"]),
        ({"recurrent": {"data": {}}}, ["systems.recurrent.data", "only model and training"]),
        (
            {"recurrent": {"training": {"lerning_rate": 1}}},
            ["systems.recurrent.training.lerning_rate", "'learning_rate'"],
        ),
        ({"recurrent": {"training": {"dropout": 0.1}}}, ["systems.recurrent.training.dropout", "model.dropout"]),
        ({"recurrent": {"training": {"learning_rate": "fast"}}}, ["systems.recurrent.training.learning_rate", "fast"]),
        ({"recurrent": {"training": {"steps": 9}}}, ["systems.recurrent.training.steps", "shared by all"]),
        ({"recurrent-lstm": {"model": {"cell": "gru"}}}, ["systems.recurrent-lstm.model.cell", "the name"]),
        (
            {"transformer": None, "recurrent": {"model": {"d_model": 64}}},
            ["recurrent.model.d_model", "remove this key"],
        ),
        ({"transformer": {"model": {"num_heads": 3}}}, ["transformer", "num_heads"]),
    ],
)
def test_invalid_system_settings_name_key(section: Any, words: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        compare({"systems": section, "training": {"steps": 1}, "output": str(tmp_path / "out")}, quiet=True)
    assert all(word in str(error.value) for word in words), error.value
    assert not (tmp_path / "out").exists()


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], ["--steps", "--minutes"]),
        (["--steps", "2", "--systems", "transformer,recurent"], ["recurent", "'recurrent'"]),
        (["--steps", "2", "--systems", "recurrent-gru-lstm"], ["gru", "lstm", "exclude"]),
        (["--steps", "2", "--systems", "recurrent-post"], ["post", "gru, lstm"]),
        (["--steps", "2", "--systems", "transformer,transformer"], ["twice"]),
        (["--steps", "2", "--systems", ","], ["--systems"]),
        (["--steps", "2", "--equal", "minutes"], ["--minutes"]),
        (["--steps", "2", "--equal", "size"], ["parameters, minutes"]),
        (["--steps", "2", "--lang", "de"], ["--lang", "en, zh"]),
        (["--steps", "2", "--model.architecture=recurrent"], ["--systems"]),
        (["--steps", "2", "--model.positions=rotary"], ["rotary"]),
        (["--steps", "2", "--device", "cuda:99"], ["cuda:99"]),
        (["--steps", "2", "--model.d_modle=8"], ["d_model"]),
    ],
)
def test_invalid_flags_fail_before_any_work(
    corpus: list[str], flags: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("compare", *corpus, *TINY, *flags, "-o", tmp_path / "out") == 2
    message = capsys.readouterr().err
    assert message.startswith("heedful: ") and len(message.splitlines()) == 1
    assert all(word in message for word in words), message
    assert not (tmp_path / "out").exists()


def test_missing_matplotlib_names_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.paper.compare.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"heedful\[plots\]"):
        compare({"training": {"steps": 1}})


# ---- widths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["recurrent", "recurrent-lstm-dot", "convolutional", "transformer-post"])
@pytest.mark.parametrize("width", [64, 256])
def test_matching_width(name: str, width: int) -> None:
    reference = ModelConfig(source_vocab_size=500, target_vocab_size=500, d_model=width, d_ff=2 * width, num_heads=4)
    reference = replace(reference, num_encoder_layers=1, num_decoder_layers=1)
    wanted = num_parameters_of(reference)
    [system] = parse_systems([name])
    rival = replace(reference, architecture=system.architecture, **system.keys)
    counts = {some: num_parameters_of(replace(rival, d_model=some)) for some in range(16, 400, 8)}
    best = min(counts, key=lambda some: abs(counts[some] - wanted))
    found = matching_width(rival, wanted, name)
    assert abs(num_parameters_of(replace(rival, d_model=found)) / wanted - 1) <= TOLERANCE
    if abs(counts[best] / wanted - 1) <= TOLERANCE:
        assert found == best
    else:
        assert found % 8


@pytest.mark.parametrize("name", ["recurrent", "convolutional"])
def test_heads_apply_only_to_transformer(name: str) -> None:
    shared = {"model": {"num_heads": 4, "head_dim": 32, "key_dim": 16}}
    [transformer, rival] = [
        build_config(system.request(shared), "base").model for system in parse_systems(["transformer", name])
    ]
    assert (transformer.num_heads, transformer.head_dim, transformer.key_dim) == (4, 32, 16)
    assert (rival.num_heads, rival.head_dim, rival.key_dim) == (1, None, None)
    [own] = parse_systems([name], {name: {"model": {"key_dim": 16}}})
    with pytest.raises(ConfigError, match="key_dim belongs to a Transformer"):
        build_config(own.request(shared), "base")


def test_no_matching_width() -> None:
    model = ModelConfig(source_vocab_size=50, target_vocab_size=50, architecture="convolutional", num_heads=1)
    with pytest.raises(ConfigError, match=r"recurring: no width.*--equal minutes"):
        matching_width(model, 100, "recurring")


# ---- measuring -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(resident_bytes() is None, reason="the system does not tell its resident memory")
def test_measure_memory_sees_growth() -> None:
    with measure_memory(torch.device("cpu")) as memory:
        held = torch.ones(16 * 2**20)  # 64 MiB, touched
    assert memory.num_bytes is not None and memory.num_bytes >= 0.9 * held.numel() * 4
    assert not any(thread.name == "memory" for thread in threading.enumerate())
    with pytest.raises(ZeroDivisionError), measure_memory(torch.device("cpu")):
        raise ZeroDivisionError
    assert not any(thread.name == "memory" for thread in threading.enumerate())


class Echo:
    """A translator that copies the source, one token per word, and counts its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str | None]] = []

    def translate(self, texts: list[str], *, target_language: str | None) -> list[SimpleNamespace]:
        self.calls.append((len(texts), target_language))
        return [SimpleNamespace(text=text, tokens=text.split(), num_sentences=1) for text in texts]


def test_decode_order_and_duplicates() -> None:
    sources = [("a b", "de"), ("c", "fr"), ("a b", "de"), ("a b", "fr")]
    pairs = [TrainingPair(source=text, target="", corpus_index=0, target_language=tag) for text, tag in sources]
    echo = Echo()
    found = decode(echo, pairs)  # type: ignore[arg-type]
    assert found.texts == ["a b", "c", "a b", "a b"]
    assert (found.num_sentences, found.num_tokens) == (3, 3 + 2 + 3)
    assert echo.calls == [(2, "de"), (2, "fr")] * (1 + MAX_PASSES)  # warm-up, then short passes


def test_read_training_curves(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"event": "train", "step": 10, "tokens": 1000, "seconds": 5.0, "loss": 4.0, "tokens_per_second": 200.0},
        {"event": "valid", "step": 15, "loss": 3.0},
        {"event": "note", "message": "…"},
        {"event": "train", "step": 20, "tokens": 2000, "seconds": 9.0, "loss": None, "tokens_per_second": 500.0},
        {"event": "train", "step": 30, "tokens": 3000, "seconds": 12.0, "loss": 2.0, "tokens_per_second": 1000.0},
        {"event": "valid", "step": 30, "loss": 2.5},
        {"event": "valid", "step": 30, "loss": 2.4},
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    course = read_training_curves(log)
    assert [(point.step, point.loss) for point in course.train] == [(10, 4.0), (30, 2.0)]
    assert [(p.step, p.tokens, p.seconds, p.loss) for p in course.valid] == [(15, 1500, 7, 3.0), (30, 3000, 12, 2.5)]
    assert course.tokens_per_second == pytest.approx(2000 / 3)
    assert read_training_curves(tmp_path / "none").tokens_per_second is None


# ---- charts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.3, 7.9), (0, 12_345_678), (2.0001, 2.0002), (0, 1e-9)])
def test_axis_ticks(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 2 <= len(found) <= 7
    assert all(low - 1e-9 <= tick <= high * (1 + 1e-9) for tick in found)
    assert [tick_label(number) for number in (1_500_000, 20_000, 0.25)] == ["1.5M", "20k", "0.25"]


def test_svg_charts_scale_and_escape() -> None:
    bars = bar_chart([("<a>", 10.0, "ten"), ("b", 5.0, "five"), ("c", None, "–")], title="t")
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', bars)]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.1) and widths[2] == 0
    assert "&lt;a&gt;" in bars and "<a>" not in bars
    chart = line_chart([Line("one", [(0, 1.0), (10, 2.0)], 0)], x_label="x", y_label="y")
    [places] = re.findall(r'<polyline class="line s0" points="([^"]+)"', chart)
    (x0, y0), (x1, y1) = (tuple(map(float, place.split(","))) for place in places.split())
    assert x0 < x1 and y0 > y1  # larger is higher on the page
    assert line_chart([], x_label="x", y_label="y") == ""


def test_report_of_several_test_sets(finished: Path) -> None:
    results = results_of(finished)
    assert not any("Other test sets" in remark for remark in remarks(results, "en"))
    for number, one in enumerate(results["systems"]):
        one["scores"].append({**one["scores"][0], "data": "second.aa + second.bb", "value": 20.0 + number})
    [text] = [remark for remark in remarks(results, "en") if "Other test sets" in remark]
    assert re.search(r"is on .*test\.aa \+ test\.bb\. .*second\.aa \+ second\.bb: transformer 20\.0", text)
    assert "recurrent 21.0" in text and "convolutional 22.0" in text


def test_unused_keys_are_not_differences() -> None:
    """Settings of a Transformer that a recurrent model does not use: positions, feed-forward layers, norms."""
    own = {"positions": "rotary", "activation": "swiglu", "d_ff": 96, "attention_dropout": 0.1, "norm": "rms"}
    systems = parse_systems(["transformer", "recurrent", "convolutional"], {"transformer": {"model": own}})
    reference, recurrent, convolutional = (build_config(system.request({}), "base") for system in systems)
    assert differences(recurrent, reference) == {
        "model.num_encoder_layers": 2,
        "model.num_decoder_layers": 2,
        "model.attention_scoring": "additive",
    }
    assert differences(convolutional, reference) == {"model.positions": "sinusoidal"}


def test_unused_keys_do_not_change_the_model() -> None:
    changed: dict[str, Any] = {
        "d_ff": 7,
        "norm": "rms",
        "norm_placement": "pre",
        "activation": "gelu",
        "norm_epsilon": 0.1,
    }
    changed |= {
        "final_norm": True,
        "attention_dropout": 0.5,
        "activation_dropout": 0.5,
        "kernel_size": 4,
        "cell": "lstm",
    }
    changed |= {"bias": False, "positions": "learned", "key_dim": 6}
    for architecture, keys in UNUSED_KEYS.items():
        model = ModelConfig(
            architecture=architecture, d_model=16, num_heads=1, target_vocab_size=9, source_vocab_size=9
        )  # type: ignore[arg-type]
        other = replace(model, **{key: changed[key] for key in keys if key != "key_dim"})
        outputs = []
        for config in (model, other):
            torch.manual_seed(1)
            outputs.append(build_model(config).train()(torch.tensor([[3, 4]]), torch.tensor([[5, 6]])))
        torch.testing.assert_close(*outputs, msg=architecture)


def test_early_stopped_systems_are_named(finished: Path) -> None:
    results = results_of(finished)
    for one in results["systems"]:
        one["cpu_share"] = None  # a busy machine would add a remark
    assert not any("recurrent" in remark for remark in remarks(results, "en"))
    results["systems"][1]["stopped_by"] = "early stopping"
    assert [remark for remark in remarks(results, "en") if "did not improve: recurrent." in remark]


def test_report_in_both_languages(finished: Path) -> None:
    assert set(WORDS["en"]) == set(WORDS["zh"])
    results = results_of(finished)
    assert table(results, "en")[1] == table(results, "zh")[1]


def test_chart_drops_only_steep_start_of_thin_lines() -> None:
    falling = [(0.0, 15.0), (5.0, 4.0), (20.0, 3.0), (100.0, 2.0)]
    thin, marked = Line("a", falling, 0, thin=True), Line("b", [(2.0, 3.5), (100.0, 1.0)], 1)
    assert [line.points for line in without_steep_start([thin, marked])] == [falling[2:], marked.points]
    assert without_steep_start([replace(thin, thin=False)])[0].points == falling
    assert without_steep_start([]) == []


@pytest.mark.parametrize(("given", "expected"), [({}, False), ({"fused_step": True}, True)])
def test_comparison_disables_fused_step(given: dict[str, Any], expected: bool) -> None:
    plan = make_plan({"training": {"steps": 3, **given}}, None, None)
    assert [build_config(system.request(plan.shared), "base").training.fused_step for system in plan.systems] == [
        expected for _ in plan.systems
    ]
