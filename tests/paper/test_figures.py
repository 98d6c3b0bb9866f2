"""The figures show what the code computes, in two languages, with fonts that have the characters."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib import font_manager

from heedful.build_model import build_model, num_parameters
from heedful.cli import run
from heedful.config import ModelConfig
from heedful.config_loading import build_config, from_mapping
from heedful.decoding.search import force_decode
from heedful.errors import ConfigError, DecodingError
from heedful.model_dir import load_model
from heedful.model_dir.save_load import AlignmentSource
from heedful.paper import plot_style, table1
from heedful.paper.figures import (
    architecture,
    attention,
    masks,
    norms,
    positions,
    schedule_smoothing,
)
from heedful.paper.figures.registry import WORDS, TrainingRuns, choose_figures, draw_figures
from heedful.paper.plot_style import new_figure, save, styled
from heedful.paper.synthetic_tasks import FIRST_DIGIT, small_config

# ---- fonts and words -------------------------------------------------------------------------------------------------


def test_choose_font() -> None:
    assert plot_style.choose_font(["DejaVu Sans", "SimHei", "WenQuanYi Micro Hei"]) == "WenQuanYi Micro Hei"
    assert plot_style.choose_font(["SimHei", "Arial"]) == "SimHei"
    assert plot_style.choose_font(["DejaVu Sans"]) is None


def test_missing_characters() -> None:
    covered = {ord(letter) for letter in "abc"}
    assert plot_style.missing_characters(["a b\n", "c 注意 注"], covered) == ["注", "意"]


def test_missing_chinese_font_names_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot_style, "installed_fonts", lambda: ["DejaVu Sans"])
    assert plot_style.font_families(["√d_k · ε → ▁a"]) == ["DejaVu Sans"]
    with pytest.raises(ConfigError, match=r"注意.*fonts-noto-cjk"):
        plot_style.font_families(["注意"])


def test_uncovered_characters_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot_style, "choose_font", lambda available: "DejaVu Sans")
    with pytest.raises(ConfigError, match=r"no glyphs for '\U00012000'|no glyphs for '𒀀'"):
        plot_style.font_families(["a 𒀀 b"])


def test_missing_glyph_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be drawn"), styled(["known"]):
        figure = new_figure(2, 2)
        figure.text(0.5, 0.5, "\U00012000")  # cuneiform
        save(figure, tmp_path, "tofu")


@pytest.mark.parametrize("words", [*WORDS.values(), table1.WORDS])
def test_figure_texts_exist_in_both_languages(words: Any) -> None:
    for english, chinese in words.values():
        assert english
        assert not any("\u4e00" <= character <= "\u9fff" for character in english)
        assert set(fields(english)) == set(fields(chinese))
    assert any("\u4e00" <= character <= "\u9fff" for _, chinese in words.values() for character in chinese)


def fields(text: str) -> list[str]:
    import string

    return [name for _, name, _, _ in string.Formatter().parse(text) if name]


def has_chinese_font() -> bool:
    return plot_style.choose_font(entry.name for entry in font_manager.fontManager.ttflist) is not None


# ---- what is computed ------------------------------------------------------------------------------------------------


def test_architecture_shapes_and_parameters() -> None:
    for preset in ("base", "small"):
        config = build_config({"preset": preset}).model
        stacks = architecture.trace(config, batch=2, source=5, target=7)
        with torch.device("meta"):
            model = build_model(config)
        assert stacks.total == num_parameters(model)
        layers = {"encoder": config.num_encoder_layers, "decoder": config.num_decoder_layers}
        counted = sum(
            box.num_parameters * (layers[side] if box.layered else 1)
            for side in layers
            for box in getattr(stacks, side)
        )
        assert counted == stacks.total
        shapes = {box.name: box.shape for box in stacks.decoder}
        assert shapes["cross_attention"] == (2, 7, config.d_model)
        assert shapes["softmax"] == (2, 7, config.target_vocab_size)
        assert {box.shape for box in stacks.encoder[1:]} == {(2, 5, config.d_model)}


@pytest.mark.parametrize("tying", ["three_way", "target", "none"])
@pytest.mark.parametrize("where", ["sinusoidal", "learned", "rotary"])
def test_architecture_boxes_sum_to_all_parameters(tying: str, where: str) -> None:
    config = from_mapping(ModelConfig, {"d_model": 16, "d_ff": 32, "num_heads": 2, "tying": tying, "positions": where})
    stacks = architecture.trace(config)
    boxes = [(box, config.num_encoder_layers) for box in stacks.encoder + stacks.decoder]
    assert sum(box.num_parameters * (layers if box.layered else 1) for box, layers in boxes) == stacks.total


def test_architecture_norm_placement() -> None:
    post, pre = (
        [box.name for box in architecture.trace(ModelConfig(norm_placement=place)).encoder[3:]]  # type: ignore[arg-type]
        for place in ("post", "pre")
    )
    assert post == ["self_attention", "norm", "feed_forward", "norm"]
    assert pre == ["norm_first", "self_attention", "norm_first", "feed_forward", "final_norm"]


def test_position_products_depend_only_on_distance() -> None:
    from_start, from_far = (positions.products_by_distance(64, 30, start=start) for start in (0, 50))
    torch.testing.assert_close(from_start, from_far, atol=1e-4, rtol=0)
    expected = [sum(math.cos(distance / 10_000 ** (2 * i / 64)) for i in range(32)) / 32 for distance in range(31)]
    torch.testing.assert_close(from_start, torch.tensor(expected, dtype=torch.float64), atol=1e-5, rtol=0)


def test_mask_figure_uses_model_masks() -> None:
    shown = masks.attention_masks()
    assert torch.equal(shown["causal"], torch.ones(12, 12, dtype=torch.bool).tril())
    for query, own in enumerate(masks.TARGET_SEGMENTS):
        for key, other in enumerate(masks.SOURCE_SEGMENTS):
            assert shown["cross"][query, key] == (own == other > 0)
    assert torch.equal(shown["decoder"], shown["decoder"].tril())
    labels = [[label.get_text() for label in panel.get_yticklabels()] for panel in masks.draw_masks("en").axes]
    assert labels[0] == [str(place) for place in range(1, 13)]
    assert labels[1][:5] == ["we 1", "like 1", "green 1", "tea 1", "it 2"] and labels[1][-1] == "–"
    assert labels[2] == labels[3] and labels[2][3] == "<s> 2"


def test_unscaled_scores_saturate_softmax() -> None:
    scaled = {d_k: attention.saturation("scaled_dot", d_k=d_k) for d_k in (4, 1024)}
    unscaled = {d_k: attention.saturation("dot", d_k=d_k) for d_k in (4, 1024)}
    assert scaled[1024].deviation == pytest.approx(1, rel=0.1)
    assert unscaled[1024].deviation == pytest.approx(32, rel=0.1)
    assert scaled[1024].entropy == pytest.approx(scaled[4].entropy, rel=0.1)
    assert unscaled[1024].entropy < 0.2
    assert unscaled[1024].largest > 0.9
    assert unscaled[1024].gradient < 0.3 * scaled[1024].gradient


def test_saturation_gradient() -> None:
    scores = torch.randn(6, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: torch.softmax(x, dim=-1), scores)
    weights = torch.softmax(scores, dim=-1)
    torch.testing.assert_close(jacobian, torch.diag(weights) - torch.outer(weights, weights))


def test_norms_and_padding() -> None:
    assert norms.change_by_padding("layer", 5.0) == norms.change_by_padding("batch", 5.0) == 0
    assert norms.change_by_padding("batch_padded", 5.0) > 1
    assert norms.change_by_other_sentences("layer") == 0
    assert norms.change_by_other_sentences("batch") > 0.1
    alone, mixed = norms.gradient_by_sentence("layer"), norms.gradient_by_sentence("batch")
    assert alone[0] > 0
    assert alone[1:] == [0] * 5
    assert min(mixed) > 0


def test_only_batch_norm_differs_between_training_and_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "VALID_BATCHES", 1)
    stages: list[str] = []
    curves = {
        norm: norms.train_norm(
            norm, steps=6, device=torch.device("cpu"), report=lambda stage, done, total: stages.append(stage)
        )
        for norm in norms.NORMS
    }
    for norm, one in curves.items():
        assert one.steps == list(range(1, 7)) and one.train[-1] < one.train[0]
        same = one.valid == pytest.approx(one.valid_training_mode, abs=1e-6)
        assert same == (norm != "batch")
    assert len(stages) == 3 * 6
    again = norms.train_norm("batch", steps=6, device=torch.device("cpu"))
    assert vars(again) == vars(curves["batch"])
    numbers = norms.norm_training_results(curves, device=torch.device("cpu"))
    assert numbers["losses"]["batch"]["valid"] == again.valid and numbers["seed"] == norms.SEED
    assert numbers["machine"]["device"] == "CPU" and numbers["versions"]["torch"]


@pytest.mark.parametrize("norm", norms.NORMS)
def test_only_batch_norm_leaks_later_tokens(norm: str) -> None:
    """Why its training loss is not comparable: statistics of whole targets bypass the causal mask."""
    torch.manual_seed(1)
    model = build_model(small_config(norm=norm))
    batch = norms.sorting_batch(random.Random(1))
    later = batch.target_input.clone()
    later[0, 2] = FIRST_DIGIT + (later[0, 2] - FIRST_DIGIT + 1) % 10
    for is_training in (True, False):
        model.train(is_training)
        first, other = (
            model(batch.source, target, batch.source_segments, batch.target_segments)[0, :2]
            for target in (batch.target_input, later)
        )
        assert torch.allclose(first, other, atol=1e-6) == (norm != "batch" or not is_training)


def test_valid_loss_keeps_running_statistics() -> None:
    model = build_model(small_config(norm="batch"))
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    norms.valid_loss(model, [norms.sorting_batch(random.Random(1))], training_mode=True)
    assert before
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, before[name])


def test_schedule_figure_matches_equation_3() -> None:
    steps = [1, 100, 4000, 4001, 30_000]
    for d_model, warmup in schedule_smoothing.SETTINGS:
        formula = [d_model**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in steps]
        assert schedule_smoothing.learning_rates(d_model, warmup, steps) == pytest.approx(formula)


@pytest.mark.parametrize("smoothing", schedule_smoothing.SMOOTHINGS)
def test_label_smoothing_figure(smoothing: float) -> None:
    asked = schedule_smoothing.target_distribution(smoothing)
    assert asked[2] == pytest.approx(1 - smoothing + smoothing / 10)
    assert asked[0] == pytest.approx(smoothing / 10)
    assert sum(asked) == pytest.approx(1)
    grid = [(index + 0.5) / 200 for index in range(200)]
    lowest = min(grid, key=lambda confidence: schedule_smoothing.loss_at(confidence, smoothing))
    assert lowest == pytest.approx(asked[2], abs=0.006)


# ---- attention of a trained model ------------------------------------------------------------------------------------


def example_of(directory: Path, sentence: str = "a b c") -> attention.AttentionExample:
    loaded, target = attention.load_for_figures(directory, sentence, None)
    return attention.translate_with_attention(loaded, sentence, target_language=target)


def test_attention_figure_shows_the_models_weights(directory: Path) -> None:
    example = example_of(directory)
    num_source, num_target = len(example.source_pieces), len(example.target_pieces)
    assert example.cross.shape == (num_target, 2, 2, num_source)
    assert example.encoder is not None and example.decoder is not None
    assert example.encoder.shape == (2, 2, num_source, num_source)
    assert example.decoder.shape == (2, 2, num_target, num_target)
    for weights in (example.cross, example.encoder, example.decoder):
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))
    assert torch.equal(example.decoder, example.decoder.tril())
    assert example.input_pieces[1:] == example.target_pieces[:-1]
    loaded = load_model(directory)
    ids = torch.tensor([loaded.tokenizer.encode_source("a b c")])
    pieces = loaded.tokenizer.pieces(range(loaded.tokenizer.target_vocab_size))
    target = [pieces.index(piece) for piece in example.target_pieces]
    [forced] = force_decode(
        loaded.model, ids, torch.ones_like(ids, dtype=torch.bool), [target], bos_id=loaded.tokenizer.bos_id,
        need_weights=True,
    )  # fmt: skip
    assert forced.attention is not None
    torch.testing.assert_close(example.cross, forced.attention, atol=1e-5, rtol=0)
    probabilities = example.probabilities[range(num_target), target]
    torch.testing.assert_close(probabilities.log(), torch.tensor(forced.token_log_probs), atol=1e-5, rtol=0)


def test_attention_figure_plots_the_chosen_head(directory: Path) -> None:
    example = example_of(directory)
    with styled([]):
        figure = attention.draw_attention("en", example, layer=2, heads=[2])
    assert example.decoder is not None and example.encoder is not None
    own, source = attention.self_head(example.decoder), attention.self_head(example.encoder)
    expected = [
        example.cross[:, 1, 1],
        example.decoder[own.layer - 1, own.head - 1],
        example.encoder[source.layer - 1, source.head - 1],
    ]
    shown = [panel.images[0].get_array() for panel in figure.axes[:3]]
    for image, weights in zip(shown, expected, strict=True):
        assert image is not None
        assert torch.equal(torch.tensor(image.filled(0.0)), weights)


def test_heads_of_attention_figure(directory: Path) -> None:
    example = example_of(directory)
    assert attention.cross_heads(example, 2, [2]) == [attention.Head(2, 2, "chosen")]
    recorded = replace(example, recorded=AlignmentSource(layer=1, offset=0, head=0))
    assert attention.cross_heads(recorded)[0] == attention.Head(2, 1, "recorded")
    best, last = attention.cross_heads(example)[0], attention.cross_heads(example)[-1]
    in_last = [attention.mutual_attention(example.cross[:, 1, j]) for j in range(2)]
    assert last.layer == 2 and in_last[last.head - 1] == max(in_last)
    measures = [attention.mutual_attention(example.cross[:, i, j]) for i in range(2) for j in range(2)]
    assert attention.mutual_attention(example.cross[:, best.layer - 1, best.head - 1]) == max(measures)
    [in_layer] = attention.cross_heads(example, layer=1)
    assert in_layer.layer == 1
    with pytest.raises(DecodingError, match="layers 1 to 2, not 3"):
        attention.cross_heads(example, 3, [])
    with pytest.raises(DecodingError, match="heads 1 to 2, not 0"):
        attention.cross_heads(example, 1, [0])


def test_mutual_attention_and_attention_to_others() -> None:
    assert attention.mutual_attention(torch.eye(4)) == 1
    one_key = torch.zeros(4, 4)
    one_key[:, 2] = 1
    assert attention.mutual_attention(one_key) == 0.25
    assert attention.attention_to_others(torch.eye(4)) == 0
    previous = torch.eye(5).roll(-1, dims=1)
    assert attention.attention_to_others(previous) == pytest.approx(0.8)


# ---- the verb --------------------------------------------------------------------------------------------------------


def test_figures_are_reproducible(tmp_path: Path) -> None:
    names = choose_figures([], with_sample=False)
    written = draw_figures(tmp_path / "one", training_runs=TrainingRuns(steps=2))
    drawn = [f"{name}.{end}" for name in names for end in ("png", "svg")]
    assert sorted(path.name for path in written) == sorted([*drawn, "norm_training.json"])
    again = draw_figures(tmp_path / "two", only=["masks", "norm_training"], training_runs=TrainingRuns(steps=2))
    for path in again[:4]:
        assert path.read_bytes() == (tmp_path / "one" / path.name).read_bytes()


def test_figures_verb_draws_attention(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--only", "attention", "--only", "architecture", "--layer", "2", "--head", "1"]
    assert run(["paper", "figures", "-o", str(tmp_path), "-m", str(directory), "--sentence", "a b $c$", *asked]) == 0
    printed = capsys.readouterr().out.split()
    assert [Path(path).name for path in printed] == [
        "attention.png",
        "attention.svg",
        "architecture.png",
        "architecture.svg",
    ]
    assert all(Path(path).stat().st_size > 5000 for path in printed)


def test_figures_find_the_bundled_model_and_the_language(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["-m", "en-de-zh", "--only", "attention", "--theme", "dark"]
    assert run(["paper", "figures", "-o", str(tmp_path), *asked, "--sentence", "Wo ist der Hund?"]) == 0
    assert len(capsys.readouterr().out.split()) == 2


def test_figures_with_model_show_its_shapes(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["-m", str(directory), "--only", "architecture"]
    assert run(["paper", "figures", "-o", str(tmp_path), *asked]) == 0
    assert [Path(path).name for path in capsys.readouterr().out.split()] == ["architecture.png", "architecture.svg"]
    drawn = (tmp_path / "architecture.svg").read_text("utf-8")
    assert r"d_\mathrm{model} = 16,\ d_\mathrm{ff} = 32" in drawn and "→ 32 → 16" in drawn


def test_figure_errors_come_before_drawing(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("kept")
    model = ["-m", str(directory), "--sentence", "a b", "--only", "masks", "--only", "attention"]
    for flags, message in ((["-o", str(tmp_path / "new"), *model, "--layer", "9"], "layers 1 to 2, not 9"),
                        (["-o", str(tmp_path / "file"), "--only", "masks"], "must be a directory")):  # fmt: skip
        assert run(["paper", "figures", *flags]) == 2
        assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_chinese_labels_need_a_font(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["paper", "figures", "-o", str(tmp_path), "--lang", "zh", "--only", "masks", "--only", "norms"])
    if has_chinese_font():
        assert code == 0
        assert len(list(tmp_path.iterdir())) == 4
    else:
        assert code == 2
        assert "fonts-noto-cjk" in capsys.readouterr().err
        assert not list(tmp_path.iterdir())


def test_figures_verb_trains_norms_only_if_selected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--only", "norm_training", "--steps", "3", "--device", "cpu"]
    assert run(["paper", "figures", "-o", str(tmp_path), *asked]) == 0
    message = capsys.readouterr()
    assert "three small models for 3 steps" in message.err and "BatchNorm, 3 steps" in message.err
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"norm_training.{end}" for end in ("json", "png", "svg")
    ]
    numbers = json.loads((tmp_path / "norm_training.json").read_text("utf-8"))
    assert numbers["steps"] == 3 and set(numbers["losses"]) == {"layer", "rms", "batch"}
    assert run(["paper", "figures", "-o", str(tmp_path / "two"), "--only", "norms"]) == 0
    assert "small models" not in capsys.readouterr().err


def test_invalid_figure_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags, message in (
        (["--lang", "de"], "--lang"),
        (["--only", "mask"], "did you mean 'masks'"),
        (["--only", "attention", "-m", "en-de-zh"], "--model DIRECTORY --sentence TEXT"),
        (["--only", "attention", "--sentence", "Where is Tom?"], "--to"),
        (["--only", "masks", "-m", "en-de-zz"], "did you mean 'en-de-zh'"),
        (["--only", "masks", "--theme", "blue"], "light, dark"),
        (["--preset", "huge"], "huge"),
        (["--only", "norm_training", "--steps", "0"], "--steps must be at least 1"),
    ):
        assert run(["paper", "figures", "-o", str(tmp_path), *flags]) == 2
        assert message in capsys.readouterr().err
    assert set(choose_figures([], with_sample=True)) - set(choose_figures([], with_sample=False)) == {
        "attention",
        "head_split",
        "decoding",
    }
    assert run(["paper", "table9"]) == 2
    assert "table1" in capsys.readouterr().err
