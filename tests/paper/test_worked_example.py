"""The worked example: its numbers are those of the module, and text, LaTeX and figure show them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.cli import run
from heedful.errors import ConfigError
from heedful.model.attention import causal_mask
from heedful.paper.worked_example import (
    SIMILAR,
    compute_example,
    difference_from_module,
    number,
    similarities,
    split_words,
    steps,
)
from heedful.paper.worked_example_report import as_latex, as_text

TEXT = "three little words"


@given(num_words=st.integers(2, 8), seed=st.integers(0, 1000))
def test_numbers_equal_module_output(num_words: int, seed: int) -> None:
    example = compute_example(" ".join(f"w{index}" for index in range(num_words)), seed=seed)
    attention, mask = example.attention, causal_mask(num_words, torch.device("cpu"))
    with torch.inference_mode():
        output, weights = attention(example.x[None], mask=mask, need_weights=True)
    assert weights is not None
    torch.testing.assert_close(example.output, output[0])
    torch.testing.assert_close(example.weights, weights[0])

    # Each step follows from the one before by the paper's formula.
    x = example.embeddings + example.positions
    query, key, value = (
        (x @ example.matrix_of(name)).unflatten(-1, (2, 2)).transpose(0, 1) for name in ("query", "key", "value")
    )
    for ours, expected in (
        (example.query, query),
        (example.key, key),
        (example.value, value),
        (example.scores, query @ key.mT),
        (example.scaled, query @ key.mT / 2**0.5),
        (example.weights, torch.softmax(example.masked, dim=-1)),
        (example.heads, example.weights @ value),
        (example.output, example.concatenated @ example.matrix_of("output")),
    ):
        torch.testing.assert_close(ours, expected)
    assert difference_from_module(example) < 1e-5


def test_changed_output_is_a_difference_from_the_module() -> None:
    example = compute_example(TEXT)
    with torch.inference_mode():
        example.output.add_(0.5)
    assert difference_from_module(example) == pytest.approx(0.5)


def test_equal_words_have_equal_embeddings_and_different_positions() -> None:
    example = compute_example("a b a")
    assert torch.equal(example.embeddings[0], example.embeddings[2])
    assert not torch.equal(example.x[0], example.x[2])


def test_dot_product_of_unit_vectors_is_the_cosine() -> None:
    table = similarities()
    for row, (x, y) in zip(table, SIMILAR.values(), strict=True):
        length, angle, product = row[2:].tolist()
        assert product == pytest.approx(x)  # the first vector is (1, 0)
        assert product == pytest.approx(length * torch.cos(torch.deg2rad(torch.tensor(angle))).item(), abs=1e-6)
        assert length == pytest.approx((x * x + y * y) ** 0.5)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_text_has_every_number(language: str) -> None:
    example = compute_example(TEXT)
    text = as_text(example, language)
    for tensor in (example.x, example.query, example.scores, example.scaled, example.weights, example.output):
        for value in tensor.flatten().tolist():
            shown = number(value)
            assert shown in text or (shown.endswith("00") and shown[:-2] in text), shown
    assert text.count("−∞") > 9
    assert "three" in text and max(map(len, text.splitlines())) <= 100


def test_calculations_are_true_up_to_rounding() -> None:
    """Sums of products in the text are computed again from the displayed numbers."""
    checked = 0
    for step in steps(compute_example(TEXT), "en"):
        for calculation in step.calculations:
            parts = calculation.split(" = ")
            if "·" not in parts[-2] or "exp" in parts[-2]:
                continue
            products = [re.findall(r"-?\d+\.\d+", product) for product in parts[-2].split(" + ")]
            total = sum(float(a) * float(b) for a, b in products)
            assert total == pytest.approx(float(parts[-1]), abs=0.003)
            checked += 1
    assert checked >= 5


@pytest.mark.parametrize(("language", "text"), [("en", "50% & $x_1 a\\b"), ("zh", TEXT), ("en", "三个小词")])
def test_latex_is_balanced(language: str, text: str) -> None:
    document = as_latex(compute_example(text), language)
    opened = re.findall(r"\\begin\{(\w+\*?)\}", document)
    assert sorted(opened) == sorted(re.findall(r"\\end\{(\w+\*?)\}", document))
    plain = document.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")
    assert plain.replace(r"\$", "").count("$") % 2 == 0
    assert not re.search(r"[\x02\x03√ᵀ∞]", document)
    assert (r"\usepackage{ctex}" in document) == (language == "zh" or not text.isascii())


def test_words_are_split() -> None:
    assert split_words("三个小词") == ["三", "个", "小", "词"]
    assert split_words(" a  b ") == ["a", "b"]
    for text in ("", "one", "a b c d e f g h i"):
        with pytest.raises(ConfigError, match="2 to 8"):
            split_words(text)


def test_verb_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["paper", "worked-example", "a $b$ c", "-o", str(tmp_path)]) == 0
    assert "number by number" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["worked_example.png", "worked_example.svg"]
    assert run(["paper", "worked-example", "a b", "--format", "latex"]) == 0
    assert capsys.readouterr().out.startswith(r"\documentclass")
    assert run(["paper", "worked-example", "a b", "--format", "html"]) == 2
    assert "--format" in capsys.readouterr().err
    assert run(["paper", "worked-example", "a b", "--lang", "de"]) == 2
    assert "--lang" in capsys.readouterr().err
