"""The teacher of stage 5 imported from OPUS-MT, and the larger model that stage 5 starts from."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recipes.recipe_scripts import script

ROOT = Path(__file__).resolve().parents[2]
WIDTH, INNER, LAYERS = 16, 24, 2
LINES = ["the cat sat on the mat", "a dog ran", "the mat", "dogs and cats ran on and on"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An Argos Translate package: a Marian model with random weights, written by CTranslate2."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    import sentencepiece

    folder = tmp_path_factory.mktemp("package")
    (folder / "text").write_text("\n".join(LINES * 20), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "sentencepiece"), vocab_size=40, minloglevel=2,
        hard_vocab_limit=False,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    pieces = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    pieces = ["</s>", "<unk>", *(piece for piece in pieces if piece not in ("<unk>", "<s>", "</s>")), "ж", "词"]
    specs = ctranslate2.specs
    spec = specs.TransformerSpec.from_config(
        (LAYERS, LAYERS), 4, pre_norm=False, activation=specs.common_spec.Activation.SWISH
    )
    fill(spec, len(pieces))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.add_source_eos = True
    spec.validate()
    spec.save(str(folder))
    place = folder / "xx_en.argosmodel"
    with zipfile.ZipFile(place, "w") as archive:
        for name in ("model.bin", "shared_vocabulary.json", "sentencepiece.model"):
            archive.write(folder / name, f"translate-xx_en/{name}")
    return place


def fill(spec: Any, vocabulary: int) -> None:
    """Random weights of the right shapes, with an output bias and a zero decoder start embedding."""
    rng = np.random.default_rng(3)

    def matrix(part: Any, rows: int, columns: int, *, bias: bool = True) -> None:
        part.weight = rng.normal(0, columns**-0.5, (rows, columns)).astype(np.float32)
        if bias:
            part.bias = rng.normal(0, 0.3, rows).astype(np.float32)

    def norm(part: Any) -> None:
        part.gamma = rng.uniform(0.5, 1.5, WIDTH).astype(np.float32)
        part.beta = rng.normal(0.2, 0.3, WIDTH).astype(np.float32)

    table = rng.normal(0, 1, (vocabulary, WIDTH)).astype(np.float32)
    places = rng.normal(0, 1, (300, WIDTH)).astype(np.float32)
    for stack in (spec.encoder, spec.decoder):
        stack.scale_embeddings = True
        stack.position_encodings.encodings = places
        for layer in stack.layer:
            matrix(layer.self_attention.linear[0], 3 * WIDTH, WIDTH)
            matrix(layer.self_attention.linear[1], WIDTH, WIDTH)
            norm(layer.self_attention.layer_norm)
            if stack is spec.decoder:
                matrix(layer.attention.linear[0], WIDTH, WIDTH)
                matrix(layer.attention.linear[1], 2 * WIDTH, WIDTH)
                matrix(layer.attention.linear[2], WIDTH, WIDTH)
                norm(layer.attention.layer_norm)
            matrix(layer.ffn.linear_0, INNER, WIDTH)
            matrix(layer.ffn.linear_1, WIDTH, INNER)
            norm(layer.ffn.layer_norm)
    spec.encoder.embeddings[0].weight = table
    spec.decoder.embeddings.weight = table
    spec.decoder.projection.weight = table
    spec.decoder.projection.bias = rng.normal(0, 1, vocabulary).astype(np.float32)
    spec.decoder.start_from_zero_embedding = True


def test_imported_teacher_equals_ctranslate2(package: Path, tmp_path: Path) -> None:
    import ctranslate2

    teacher = script("opus_mt")
    text = tmp_path / "in.zh"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    teacher.import_teacher(package, tmp_path / "teacher", [text])
    (tmp_path / "more.zh").write_text(f"{LINES[1]}\n", encoding="utf-8")
    files = [text, tmp_path / "out.en", tmp_path / "more.zh", tmp_path / "more.en"]
    teacher.translate(tmp_path / "teacher", files, num_best=1, beams=1, device="cpu")
    pieces = teacher.pieces_of(tmp_path / "teacher/sentencepiece.model", LINES)
    translator = ctranslate2.Translator(str(package.parent), compute_type="float32", intra_threads=1)
    foreign = [[piece] for piece in ("ж", "词", "<unk>")]  # the teacher's search writes only English
    options: dict[str, Any] = {"beam_size": 1, "suppress_sequences": foreign}
    expected = []
    for line in pieces:
        limit = min(teacher.MOST_PLACES - 2, 2 * len(line) + 10)
        found = translator.translate_batch([line], max_decoding_length=limit, **options)
        expected.append(teacher.joined(found[0].hypotheses[0]))
    assert any(expected), "the output is not empty"
    assert (tmp_path / "out.en").read_text(encoding="utf-8").splitlines() == expected
    assert (tmp_path / "more.en").read_text(encoding="utf-8").splitlines() == [expected[1]]


def test_unneeded_pieces_are_dropped(package: Path, tmp_path: Path) -> None:
    teacher = script("opus_mt")
    (tmp_path / "in.zh").write_text("a dog ran\n", encoding="utf-8")
    teacher.import_teacher(package, tmp_path / "teacher", [tmp_path / "in.zh"])
    kept = json.loads((tmp_path / "teacher/pieces.json").read_text(encoding="utf-8"))
    assert kept[:2] == ["</s>", "<unk>"] and "词" not in kept and "ж" not in kept
    with np.load(tmp_path / "teacher/weights.npz") as file:
        assert len(file["decoder|embeddings|weight"]) == len(file["decoder|projection|bias"]) == len(kept)


def test_bias_is_folded_into_matrix_after_norm() -> None:
    rng = np.random.default_rng(1)
    gain, shift = rng.uniform(0.5, 2, 32), rng.normal(0.1, 0.5, 32)
    weight, bias = rng.normal(size=(50, 32)), rng.normal(size=50)
    z = rng.normal(size=(7, 32))
    z = (z - z.mean(axis=1, keepdims=True)) / z.std(axis=1, keepdims=True)
    x = gain * z + shift
    found = x @ script("opus_mt").with_bias(weight, bias, gain, shift).T
    np.testing.assert_allclose(found, x @ weight.T + bias, atol=2e-4)


def test_spaces_around_apostrophes_are_removed() -> None:
    joined = script("opus_mt").joined
    assert joined(["▁The", "▁people", "▁'", "▁s", "▁choice", "."]) == "The people's choice."
    assert joined(["▁he", "▁said", ":", "▁'", "hello", "'"]) == "he said: 'hello'"
