"""Drawings: their numbers are those of the model, their texts fit and are in one language, their files are valid."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image

from heedful.build_model import num_parameters
from heedful.config import ModelConfig
from heedful.model.attention import MultiHeadAttention, Scoring, attend_explicit, causal_mask, segment_mask
from heedful.model.transformer import Transformer
from heedful.model_dir.registry import find_model
from heedful.paper import layer_costs
from heedful.paper.figures import attention, decoding, masks, multi_head, norms, sequence_models
from heedful.paper.figures.registry import FIGURES, SAMPLE_SENTENCES, WORDS, Sample, Settings, draw_figures
from heedful.paper.plot_style import LANGUAGES, THEMES, heat_colours, styled
from tests.paper.test_figures import has_chinese_font

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

DRAWINGS = [name for name in FIGURES if name != "norm_training"]
needs_chinese_font = pytest.mark.skipif(not has_chinese_font(), reason="no Chinese font is installed")
in_both = pytest.mark.parametrize("language", ["en", pytest.param("zh", marks=needs_chinese_font)])


@pytest.fixture(scope="module")
def sample(directory: Path) -> Sample:
    loaded, target = attention.load_for_figures(directory, "a b c", None)
    return Sample(loaded, "a b c", target)


@pytest.fixture(scope="module")
def animation(sample: Sample) -> decoding.Animation:
    with styled([]):
        return decoding.draw_decoding("en", sample.attention("greedy"))


# ---- the numbers are the model's -------------------------------------------------------------------------------------


def test_shapes_of_multi_head_attention() -> None:
    config = ModelConfig(d_model=48, num_heads=4, key_dim=8)
    shapes = multi_head.attention_shapes(config, batch=2, queries=5, keys=7)
    module = MultiHeadAttention(config)
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    output, weights = module(torch.randn(2, 5, 48), memory=torch.randn(2, 7, 48), mask=mask, need_weights=True)
    assert shapes["output"] == tuple(output.shape)
    assert shapes["weights"] == shapes["scores"] == tuple(weights.shape) == (2, 4, 5, 7)
    assert shapes["query"] == (2, 4, 5, 8) and shapes["value"] == (2, 4, 7, 12)
    assert shapes["concatenated"] == (2, 5, module.output.in_features)
    with styled([]):
        shown = texts_of(multi_head.draw_multi_head("en", config))
    assert f"all four linear layers: {num_parameters(module):,} parameters" in shown


def test_head_split_is_the_models_computation(sample: Sample) -> None:
    tensors = multi_head.split_heads(sample.loaded, "a b c", None)
    model = sample.loaded.model
    assert isinstance(model, Transformer)
    module: Any = model.encoder.layers[0].self_attention  # type: ignore[union-attr]
    outputs = []
    hook = module.register_forward_hook(lambda module, given, output: outputs.append(output[0][0]))
    ids = torch.tensor([sample.loaded.tokenizer.encode_source("a b c")])
    with torch.inference_mode():
        model.encode(ids, torch.ones_like(ids, dtype=torch.bool))
    hook.remove()
    torch.testing.assert_close(tensors.output, outputs[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(tensors.projected.unflatten(1, (2, 8)).transpose(0, 1), tensors.split)
    torch.testing.assert_close(torch.cat(list(tensors.heads), dim=1), tensors.concatenated)
    with styled([]):
        figure = multi_head.draw_head_split("en", tensors)
    images = [panel.images[0].get_array() for panel in figure.axes if panel.images]
    expected = [
        tensors.projected, *tensors.split, *tensors.weights, *tensors.heads, tensors.concatenated, tensors.output
    ]  # fmt: skip
    for image, values in zip(images, expected, strict=True):
        assert torch.equal(torch.tensor(image.data), values)


@pytest.mark.parametrize("language", LANGUAGES)
def test_padding_masks_are_the_models(language: str) -> None:
    rows = masks.padded_rows(language)
    shown = masks.padding_masks(rows)
    segments = masks.segments_of(rows)
    allowed = segment_mask(segments, segments) & causal_mask(segments.shape[1], segments.device)
    assert torch.equal(shown["sum"] == 0, allowed[:, 0])
    assert torch.equal(shown["sum"].isneginf(), ~allowed[:, 0])
    assert segments.sum().item() < segments.numel()
    zeros = torch.zeros(*allowed.shape[:3], 4)
    weights = attend_explicit(zeros, zeros, zeros, allowed, scoring=Scoring("dot", 1, 4), dropout=0.0).weights
    assert weights is not None
    expected = torch.softmax(shown["sum"], dim=-1).nan_to_num(0.0)
    torch.testing.assert_close(weights[:, 0], expected)


def test_cubes_mark_the_values_that_share_statistics() -> None:
    real = norms.real_tokens()
    cells = {kind: norms.shared_statistics(kind) for kind in norms.CUBE_CELLS}
    sentence, position, feature = norms.CUBE_CELLS["layer"]
    expected = torch.zeros_like(cells["layer"])
    expected[sentence, position] = True
    assert torch.equal(cells["layer"], expected)
    expected = torch.zeros_like(expected)
    expected[..., feature] = real
    assert torch.equal(cells["batch"], expected)
    expected[..., feature] = True
    assert torch.equal(cells["batch_padded"], expected)


def test_paths_of_sequence_models_are_those_of_table_1() -> None:
    for kind in sequence_models.KINDS:
        layer = layer_costs.build_layer(
            kind, d_model=16, window=5, kernel_size=5, device=torch.device("cpu"), attention="explicit"
        )
        path = sequence_models.path_between_ends(kind, 12)
        reach = layer_costs.gradient_reach(layer, length=12, d_model=16)
        assert path.layers == layer_costs.layers_to_span(reach, 12)
    paths = {
        kind: [sequence_models.path_between_ends(kind, n).total for n in (8, 16, 32)] for kind in sequence_models.KINDS
    }
    assert len(set(paths["self_attention"])) == 1
    for growing in ("recurrent", "convolutional"):
        assert paths[growing][0] < paths[growing][1] < paths[growing][2]
    steps = [b - a for a, b in zip(paths["recurrent"], paths["recurrent"][1:], strict=False)]
    assert steps[1] == 2 * steps[0]


def test_links_of_sequence_models() -> None:
    everything = list(range(7))
    assert sequence_models.inputs_of("self_attention", 7) == [everything] * 7
    assert sequence_models.inputs_of("recurrent", 7) == [everything[: index + 1] for index in range(7)]
    windows = [[source for source in everything if abs(source - index) <= 2] for index in everything]
    assert sequence_models.inputs_of("convolutional", 7) == windows


# ---- the animation ---------------------------------------------------------------------------------------------------


def test_animation_shows_the_models_decoding(sample: Sample, animation: decoding.Animation) -> None:
    example = sample.attention("greedy")
    assert example.decoder is not None
    cross, own = attention.cross_heads(example)[-1], attention.self_head(example.decoder)
    for step in range(len(example.input_pieces)):
        read, attend, predict, _ = decoding.frames_of(step)
        weights = example.decoder[own.layer - 1, own.head - 1, step, : step + 1]
        assert colours_from(animation, read)[-step - 1 :] == [colour(weight) for weight in weights.tolist()]
        weights = example.cross[step, cross.layer - 1, cross.head - 1]
        assert colours_from(animation, attend) == [colour(weight) for weight in weights.tolist()]
        parts = [part for part, first, _ in animation.parts if first == predict and hasattr(part, "get_text")]
        shown = [part.get_text() for part in parts]
        assert attention.plain(example.target_pieces[step]) in shown


def test_animation_takes_the_likeliest_token_at_each_step() -> None:
    sentence, language = SAMPLE_SENTENCES["en"]
    loaded, target = attention.load_for_figures(find_model("en-de-zh"), sentence, language)
    example = Sample(loaded, sentence, target).attention("greedy")
    for piece, probabilities, candidates in zip(
        example.target_pieces, example.probabilities, example.candidates, strict=True
    ):
        assert candidates[0] == (piece, pytest.approx(probabilities.max().item()))
        assert [value for _, value in candidates] == sorted((value for _, value in candidates), reverse=True)
    assert "".join(example.target_pieces[:-1]).replace("\u2581", " ").strip() == example.translation


def colour(weight: float) -> tuple[float, ...]:
    with styled([]):
        return heat_colours()(weight)


def colours_from(animation: decoding.Animation, frame: int) -> list[tuple[float, ...]]:
    """The colours of the cells that stay from this frame on."""
    last = len(animation.seconds)
    cells = [part for part, first, end in animation.parts if (first, end) == (frame, last) and hasattr(part, "get_xy")]
    return [cell.get_facecolor() for cell in cells if cell.get_zorder() == 2]


def test_animation_files(sample: Sample, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        draw_figures(tmp_path / folder, only=["decoding"], sample=sample)
    for ending in ("png", "svg", "gif"):
        one, two = ((tmp_path / folder / f"decoding.{ending}").read_bytes() for folder in ("one", "two"))
        assert one == two
    example = sample.attention("greedy")
    with Image.open(tmp_path / "one" / "decoding.gif") as gif:
        assert gif.n_frames == 3 * len(example.target_pieces) + 2  # type: ignore[attr-defined]
        assert gif.width == decoding.GIF_WIDTH
        assert gif.info["loop"] == 0
    text = (tmp_path / "one" / "decoding.svg").read_text("utf-8")
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") is not None
    style = root[0].text
    assert style is not None and "@media (prefers-reduced-motion:no-preference)" in style
    classes = {element.get("class") for element in root.iter() if (element.get("class") or "").startswith("f")}
    assert classes == set(re.findall(r"\.(f\d+-\d+)\{opacity", style)) == set(re.findall(r"@keyframes (\S+?)\{", style))


def test_long_sentences_make_figures_wider(sample: Sample) -> None:
    example = sample.attention("greedy")
    pieces = [f"word{number}" for number in range(40)]
    long = replace(example, source_pieces=pieces, cross=torch.full((*example.cross.shape[:3], 40), 0.025))
    with styled([]):
        usual, wider = (decoding.draw_decoding("en", one).canvas.width for one in (example, long))
    assert usual == decoding.WIDTH and wider > 700


def test_animation_opens_one_row_of_the_mask_at_a_time(animation: decoding.Animation) -> None:
    visible = []
    for number in range(len(animation.seconds)):
        animation.frame(number)
        visible.append(sum(part.get_visible() for part, _, _ in animation.parts))
    last = len(animation.seconds) - 1
    assert all(first < end <= last + 1 for _, first, end in animation.parts)
    assert visible[0] == 1  # the caption
    steps = range((last - 1) // 3)
    read = [visible[decoding.frames_of(step)[0]] for step in steps]
    assert read == sorted(read) and len(set(read)) == len(read)


# ---- texts and files -------------------------------------------------------------------------------------------------


@in_both
@pytest.mark.parametrize("name", DRAWINGS)
def test_texts_fit(name: str, language: str, sample: Sample) -> None:
    """No text leaves the figure, and no two upright texts overlap."""
    entry, example = FIGURES[name], sample.attention()
    words = [text for pair in entry.words.values() for text in pair]
    with styled([*words, *attention.attention_texts(example)]):
        drawn = entry.draw(Settings(language, ModelConfig(), sample, example))
        if isinstance(drawn, decoding.Animation):
            for number in (0, *decoding.frames_of(0), len(drawn.seconds) - 2, len(drawn.seconds) - 1):
                check_texts(drawn.frame(number))
        else:
            check_texts(drawn[0] if isinstance(drawn, tuple) else drawn)


def check_texts(figure: Figure) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer: Any = canvas.get_renderer()  # type: ignore[no-untyped-call]
    whole = figure.bbox
    boxes = [(text.get_text(), text.get_rotation(), text.get_window_extent(renderer)) for text in visible_texts(figure)]
    for text, _, box in boxes:
        assert whole.x0 - 1 <= box.x0 and box.x1 <= whole.x1 + 1, text
        assert whole.y0 - 1 <= box.y0 and box.y1 <= whole.y1 + 1, text
    for (first, angle, one), (second, other_angle, two) in combinations(boxes, 2):
        if angle == other_angle == 0:
            across = min(one.x1, two.x1) - max(one.x0, two.x0)
            down = min(one.y1, two.y1) - max(one.y0, two.y0)
            assert across < 2 or down < 4, (first, second)


def visible_texts(figure: Figure) -> list[Text]:
    """All texts that are drawn: none of hidden axes, and no tick outside the range of its axis."""
    from matplotlib.text import Annotation, Text

    hidden: set[Any] = set()
    for panel in figure.axes:
        for axis in (panel.xaxis, panel.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not panel.axison or not low <= tick.get_loc() <= high:
                    hidden.update((tick.label1, tick.label2))
    found: list[Any] = figure.findobj(lambda artist: isinstance(artist, Text) and not isinstance(artist, Annotation))
    return [text for text in found if text.get_visible() and text.get_text().strip() and text not in hidden]


def texts_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in visible_texts(figure)]


NAMES = {
    "LayerNorm",
    "BatchNorm",
    "RMSNorm",
    "Transformer",
    "Softmax",
    "softmax",
    "d_model",
    "d_ff",
    "d_k",
    "PE",
    "nat",
    "id",
}


@pytest.mark.parametrize("name", FIGURES)
def test_chinese_texts_have_no_english_words_or_brackets(name: str) -> None:
    for _, chinese in WORDS[name].values():
        text = re.sub(r"\$[^$]*\$|\{[^}]*\}", "", chinese)  # neither formulas nor fields
        assert not re.findall(r"[\u4e00-\u9fff][,;:(]|[,;:)!?][\u4e00-\u9fff]", text), chinese
        assert set(re.findall(r"[A-Za-z_]{2,}", text.replace("--layer", "").replace("--head", ""))) <= NAMES, chinese


def test_drawings_are_valid_and_reproducible(sample: Sample, tmp_path: Path) -> None:
    names = [name for name in DRAWINGS if name != "decoding"]
    for folder in ("one", "two"):
        draw_figures(tmp_path / folder, only=names, sample=sample, theme="dark")
    for name in names:
        for ending in ("png", "svg"):
            one, two = ((tmp_path / folder / f"{name}.{ending}").read_bytes() for folder in ("one", "two"))
            assert one == two
        root = ElementTree.parse(tmp_path / "one" / f"{name}.svg").getroot()
        assert root.tag.endswith("svg")
        assert THEMES["dark"].background in (tmp_path / "one" / f"{name}.svg").read_text("utf-8")
        with Image.open(tmp_path / "one" / f"{name}.png") as image:
            assert image.width <= (1440 if name == "architecture" else 1100), name  # at 150 dots per inch
