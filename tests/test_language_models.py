"""Language models from a text file to a perplexity: training, resuming, generation, masks, and the model directory."""

from __future__ import annotations

import json
import math
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import heedful
from heedful import training_pipeline
from heedful.cli.models import info_rows
from heedful.config import Config
from heedful.config_loading import build_config
from heedful.data.batch_stream import fixed_batches
from heedful.data.prepare import Prepared
from heedful.decoding.text_generation import MASK_TOKEN, TextGenerator
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError, DecodingError, TextError
from heedful.interop.export import export_ctranslate2, repack
from heedful.language_modelling import make_masking
from heedful.model_dir import describe, load_model, load_weights, verify
from heedful.native.engine import NativeEngine
from heedful.text.tokenizer import Tokenizer
from heedful.training.checkpoint import average_models
from heedful.training.logging import FileReporter, TrainRecord

KINDS = ("encoder", "decoder")
WORDS = "the a red blue green cat dog bird runs sits eats on under mat tree one two three".split()


def write_text(path: Path, num_lines: int, seed: int) -> str:
    chance = random.Random(seed)
    lines = {" ".join(chance.choices(WORDS, k=chance.randint(3, 8))) + ".": None for _ in range(num_lines)}
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def request_for(folder: Path, output: Path, kind: str, **changes: Any) -> dict[str, Any]:
    """A run of a few seconds; `changes` are written training__steps=3."""
    text = folder / "text.txt"
    request: dict[str, Any] = {
        "output": str(output),
        "preset": "tiny",
        "data": {"train": [{"text": str(text) if text.exists() else write_text(text, 120, seed=0)}], "row_width": 64},
        "tokenizer": {"vocab_size": 320, "byte_fallback": kind == "encoder"},
        "model": {
            "architecture": kind, "d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 2,
            "num_decoder_layers": 2,
        },
        "training": {
            "steps": 10, "tokens_per_step": 256, "tokens_per_microbatch": 128, "validate_every": 4, "log_every": 1,
            "average_last": 2, "ema_decay": 0.9, "device": "cpu", "tensorboard": False,
        },
    }  # fmt: skip
    for key, value in changes.items():
        section, name = key.split("__")
        request[section] = {**request.get(section, {}), name: value}
    return request


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


@pytest.fixture(scope="module")
def trained(folder: Path) -> dict[str, Path]:
    """A small model of each kind, with a test text."""
    test = [{"text": write_text(folder / "test.txt", 15, seed=7)}]
    for kind in KINDS:
        training_pipeline.train(request_for(folder, folder / kind, kind, data__test=test), quiet=True)
    return {kind: folder / kind for kind in KINDS}


@pytest.fixture(scope="module")
def decoder(trained: dict[str, Path]) -> TextGenerator:
    return TextGenerator.load(trained["decoder"], device="cpu")


@pytest.fixture(scope="module")
def encoder(trained: dict[str, Path]) -> TextGenerator:
    return TextGenerator.load(trained["encoder"], device="cpu")


def log_of(output: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (output / "training" / "log.jsonl").read_text("utf-8").splitlines()]
    kept = [line for line in lines if line["event"] not in ("note", "first_step")]
    return [{key: line[key] for key in line if key not in ("seconds", "tokens_per_second")} for line in kept]


# ---------------------------------------------------------------------- training


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_and_resumed_run_equals_uninterrupted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    training_pipeline.train(request_for(folder, whole, kind), quiet=True)
    trained = FileReporter.trained

    def trained_and_interrupted(self: FileReporter, record: TrainRecord) -> None:
        trained(self, record)
        if record.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(FileReporter, "trained", trained_and_interrupted)
        stopped = training_pipeline.train(request_for(folder, parts, kind), quiet=True)
    assert (stopped.stopped_by, stopped.steps) == ("SIGTERM", 5)
    verify(parts)
    training_pipeline.train(request_for(folder, parts, kind), resume=True, quiet=True)
    ours, theirs = load_weights(whole), load_weights(parts)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert log_of(whole) == log_of(parts)


@pytest.mark.parametrize("kind", KINDS)
def test_microbatches_give_the_gradient_of_the_whole_step(folder: Path, tmp_path: Path, kind: str) -> None:
    losses = []
    for size in (64, 256):
        settings = {"training__tokens_per_microbatch": size, "model__dropout": 0.0, "training__steps": 3}
        training_pipeline.train(request_for(folder, tmp_path / str(size), kind, **settings), quiet=True)
        losses.append([line["loss"] for line in log_of(tmp_path / str(size)) if line["event"] == "train"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_prepared_text_trains_the_same_model(folder: Path, tmp_path: Path, trained: dict[str, Path], kind: str) -> None:
    request = request_for(folder, tmp_path / "model", kind)
    config = build_config(request)
    training_pipeline.prepare_corpora(config, tmp_path / "prepared", training_pipeline_console())
    request["data"] = {"prepared": str(tmp_path / "prepared")}
    training_pipeline.train(request, quiet=True)
    ours, theirs = load_weights(tmp_path / "model"), load_weights(trained[kind])
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def training_pipeline_console() -> Any:
    from heedful.training.logging import ConsoleReporter

    return ConsoleReporter(quiet=True)


@pytest.mark.parametrize("kind", KINDS)
def test_fine_tuning_starts_from_the_model(folder: Path, tmp_path: Path, trained: dict[str, Path], kind: str) -> None:
    request = request_for(folder, tmp_path / "tuned", kind, training__init_from=str(trained[kind]))
    del request["model"], request["tokenizer"]
    request["model"] = {"architecture": kind}
    training_pipeline.train(request, quiet=True)
    tuned, before = load_weights(tmp_path / "tuned"), load_weights(trained[kind])
    assert {name: tensor.shape for name, tensor in tuned.items()} == {n: t.shape for n, t in before.items()}
    assert Tokenizer.load(tmp_path / "tuned").identity == Tokenizer.load(trained[kind]).identity
    with pytest.raises(ConfigError, match=r"model\.architecture is"):
        other = "decoder" if kind == "encoder" else "encoder"
        training_pipeline.train(request_for(folder, tmp_path / "x", other, training__init_from=str(trained[kind])))


def test_averaged_language_models_are_a_language_model(trained: dict[str, Path], tmp_path: Path) -> None:
    average_models([trained["decoder"], trained["decoder"]], tmp_path / "mean")
    ours, theirs = load_weights(tmp_path / "mean"), load_weights(trained["decoder"])
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_decoder_learns_the_entropy_of_a_repetitive_text(tmp_path: Path) -> None:
    lines = ["one cat sat on the mat.", "two dogs ran to the park.", "three birds sang in a tree.", "four men ate."]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines * 40))
    corpus = {"text": str(tmp_path / "text")}
    data = {"train": [corpus], "valid": [corpus], "deduplicate": False, "drop_overlap": False}
    request = request_for(tmp_path, tmp_path / "lm", "decoder", training__steps=200, training__learning_rate=0.01)
    request["data"] = {**data, "row_width": 64}
    request["model"] |= {"d_model": 32, "dropout": 0.0}
    result = training_pipeline.train(request, quiet=True)
    generator = TextGenerator.load(tmp_path / "lm", device="cpu")
    num_tokens = sum(len(generator.tokenizer.encode_target(line)) for line in lines)
    entropy = len(lines) * math.log(len(lines)) / num_tokens  # only the first word of a line is unknown
    assert result.valid_loss == pytest.approx(entropy, abs=0.02)
    found = generator.generate(["one", "two", "three", "four"], method="greedy")
    assert [one[0].text for one in found] == lines
    assert {line[0].text for line in generator.generate([""], method="beam")} <= set(lines)
    samples = generator.generate([""], method="sampling", num_best=40, top_p=1.0)[0]
    assert {sample.text for sample in samples} == set(lines)


@pytest.mark.slow
def test_encoder_learns_to_fill_masks(tmp_path: Path) -> None:
    lines = ["one cat sat on the mat.", "two dogs ran to the park.", "three birds sang in a tree.", "four men ate."]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines * 40))
    corpus = {"text": str(tmp_path / "text")}
    request = request_for(tmp_path, tmp_path / "lm", "encoder", training__steps=400, training__learning_rate=0.01)
    request["data"] = {
        "train": [corpus], "valid": [corpus], "deduplicate": False, "drop_overlap": False, "row_width": 64,
    }  # fmt: skip
    request["model"] |= {"d_model": 32, "dropout": 0.0}
    training_pipeline.train(request, quiet=True)
    generator = TextGenerator.load(tmp_path / "lm", device="cpu")
    filled = generator.fill_masks(["two dogs ran to <mask> park.", "three birds sang in <mask> tree."])
    assert [one.text for one in filled] == lines[1:3]
    assert all(one.masks[0][0].probability > 0.8 for one in filled)
    assert generator.perplexity(lines).token < 1.3


# ---------------------------------------------------------------------- perplexity


def test_validation_loss_is_the_perplexity_of_the_held_out_lines(decoder: TextGenerator, folder: Path) -> None:
    prepared = Prepared.open(folder / "decoder" / "training" / "data")
    measured = decoder.perplexity([pair.target for pair in prepared.valid_pairs])
    training = load_model(folder / "decoder").details["training"]
    assert measured.token == pytest.approx(math.exp(training["valid_loss"]), rel=1e-4)
    assert measured.token == pytest.approx(training["valid_perplexity"], rel=1e-4)
    assert measured.character == pytest.approx(training["valid_character_perplexity"], rel=1e-4)


def test_perplexity_equals_direct_computation(decoder: TextGenerator) -> None:
    lines = ["the cat sits.", "a", "blue bird runs on one tree and under two mats."]
    log_prob, num_tokens = 0.0, 0
    for line in lines:
        tokens = [decoder.tokenizer.bos_id, *decoder.tokenizer.encode_target(line)]
        for end in range(1, len(tokens)):
            logits = decoder.model.logits(torch.tensor([tokens[:end]]))[0, -1]
            log_prob += torch.log_softmax(logits, dim=-1)[tokens[end]].item()
            num_tokens += 1
    measured = decoder.perplexity(lines)
    assert measured.num_tokens == num_tokens
    assert measured.num_characters == sum(len(line) + 1 for line in lines)
    assert measured.log_prob == pytest.approx(log_prob, rel=1e-5)
    assert measured.token == pytest.approx(math.exp(-log_prob / num_tokens), rel=1e-5)
    assert measured.character is not None
    assert math.log(measured.character) * measured.num_characters == pytest.approx(-log_prob, rel=1e-5)
    assert [score["value"] for score in measured.scores()] == [measured.token, measured.character]


def test_pseudo_perplexity_hides_each_token_in_turn(encoder: TextGenerator) -> None:
    lines = ["the cat sits.", "a red dog"]
    log_prob, num_tokens = 0.0, 0
    for line in lines:
        tokens = encoder.tokenizer.encode_target(line)
        for place in range(len(tokens) - 1):
            masked = [*tokens[:place], encoder.tokenizer.mask_id, *tokens[place + 1 :]]
            logits = encoder.model.logits(torch.tensor([masked]))[0, place]
            log_prob += torch.log_softmax(logits, dim=-1)[tokens[place]].item()
            num_tokens += 1
    measured = encoder.perplexity(lines)
    assert (measured.num_tokens, measured.is_pseudo, measured.character) == (num_tokens, True, None)
    assert measured.log_prob == pytest.approx(log_prob, rel=1e-5)
    assert measured.name == "pseudo-perplexity"
    assert str(measured).startswith("pseudo-perplexity ")


def test_perplexity_does_not_depend_on_batches(decoder: TextGenerator, folder: Path) -> None:
    lines = (folder / "test.txt").read_text().splitlines()
    whole = decoder.perplexity(lines)
    alone = [decoder.perplexity([line]) for line in lines]
    assert whole.log_prob == pytest.approx(sum(one.log_prob for one in alone), rel=1e-5)
    assert whole.num_tokens == sum(one.num_tokens for one in alone)
    assert decoder.perplexity([*lines, "", "  "]).num_lines == len(lines)


def test_long_and_missing_lines(decoder: TextGenerator) -> None:
    measured = decoder.perplexity(["the cat.", "the cat " * 1000])
    assert (measured.num_lines, measured.num_too_long) == (1, 1)
    with pytest.raises(DecodingError, match="no line to measure"):
        decoder.perplexity(["", " "])


# ---------------------------------------------------------------------- generation


def uncached_greedy(generator: TextGenerator, prompt: str, num_tokens: int) -> list[int]:
    """The most likely tokens, with the whole text read again for each; special tokens are forbidden."""
    tokens = generator.tokenizer.encode_prefix(prompt)
    special = generator.engine.special  # type: ignore[attr-defined]
    forbidden = sorted({special.pad_id, special.bos_id, *special.forbidden})
    while len(tokens) < num_tokens:
        logits = generator.model.logits(torch.tensor([[generator.tokenizer.bos_id, *tokens]]))[0, -1]
        logits[forbidden] = -torch.inf
        tokens.append(int(logits.argmax()))
        if tokens[-1] == generator.tokenizer.eos_id:
            break
    return tokens


@torch.no_grad()
def test_cached_generation_equals_uncached(decoder: TextGenerator) -> None:
    prompts = ["the", "a red", "two", "blue cat sits on"]
    for prompt, [found] in zip(prompts, decoder.generate(prompts, method="greedy", max_length=12), strict=True):
        tokens = uncached_greedy(decoder, prompt, 12)
        assert found.text == decoder.tokenizer.decode(tokens)
        assert found.text == prompt + found.continuation
        prompt_length = len(decoder.tokenizer.encode_prefix(prompt))
        rest = [token for token in tokens[prompt_length:] if token != decoder.tokenizer.eos_id]
        assert found.tokens == decoder.tokenizer.pieces(rest)


@torch.no_grad()
def test_log_prob_is_that_of_the_continuation(decoder: TextGenerator) -> None:
    ids = {
        piece: number
        for number, piece in enumerate(decoder.tokenizer.pieces(range(decoder.tokenizer.target_vocab_size)))
    }
    for method in ("greedy", "beam", "sampling"):
        [[found]] = decoder.generate(["the cat"], method=method, max_length=8)  # type: ignore[arg-type]
        prompt = decoder.tokenizer.encode_prefix("the cat")
        whole = [*prompt, *(ids[piece] for piece in found.tokens), decoder.tokenizer.eos_id]
        logits = decoder.model.logits(torch.tensor([[decoder.tokenizer.bos_id, *whole[:-1]]]))[0]
        log_probs = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(whole)[:, None])[:, 0]
        assert found.log_prob == pytest.approx(log_probs[len(prompt) :].sum().item(), rel=1e-4)


def test_beam_search_finds_at_least_the_greedy_probability(decoder: TextGenerator) -> None:
    settings: dict[str, Any] = {"max_length": 8, "length_penalty": "none"}
    [[greedy]] = decoder.generate(["the"], method="greedy", **settings)
    [beams] = decoder.generate(["the"], method="beam", beam_size=16, num_best=4, **settings)
    assert beams[0].log_prob >= greedy.log_prob - 1e-5
    assert len({beam.text for beam in beams}) == 4
    assert [beam.log_prob for beam in beams] == sorted((beam.log_prob for beam in beams), reverse=True)


def test_samples_depend_on_seed_and_prompt_only(decoder: TextGenerator) -> None:
    prompts = ["the", "a red cat", "", "two"]
    found = decoder.generate(prompts, num_best=3, seed=5)
    assert found == decoder.generate(prompts, num_best=3, seed=5)
    assert found[::-1] == decoder.generate(prompts[::-1], num_best=3, seed=5)
    assert [found[1]] == decoder.generate([prompts[1]], num_best=3, seed=5)
    assert found != decoder.generate(prompts, num_best=3, seed=6)
    assert decoder.generate(prompts, top_k=1) == decoder.generate(prompts, method="greedy")
    assert decoder.generate([]) == []


def test_length_limits(decoder: TextGenerator) -> None:
    [[found]] = decoder.generate(["the cat"], max_length=6, min_length=6, method="greedy")
    assert len(found.tokens) + len(decoder.tokenizer.encode_prefix("the cat")) == 6
    assert not found.finished or len(found.tokens) < 6
    [[found]] = decoder.generate(["the cat"], max_extra_length=3, min_length=20, max_length=None, method="greedy")
    assert len(found.tokens) == 3
    [[found]] = decoder.generate(["the cat "], max_length=6, method="greedy")
    assert found == decoder.generate(["the cat"], max_length=6, method="greedy")[0][0]
    with pytest.raises(TextError, match=r"text 2 has \d+ tokens"):
        decoder.generate(["the", "the cat " * 2000])
    with pytest.raises(TextError, match="text 1 has several lines"):
        decoder.generate(["the\ncat"])


def test_settings_of_translation_are_refused(decoder: TextGenerator) -> None:
    with pytest.raises(ConfigError, match=r"decoding\.split is for translation"):
        decoder.generate(["the"], split="never")
    with pytest.raises(ConfigError, match="beem"):
        decoder.generate(["the"], method="beem")  # type: ignore[typeddict-item]


# ---------------------------------------------------------------------- masks


def test_masked_text_is_the_text_with_tokens_replaced(encoder: TextGenerator) -> None:
    tokenizer = encoder.tokenizer
    plain = tokenizer.encode_target("the cat sits on a mat.")
    pieces = tokenizer.pieces(plain)
    assert tokenizer.mask_id is not None
    for word in ("the", "cat", "sits", "mat"):
        masked = tokenizer.encode_masked("the cat sits on a mat.".replace(word, MASK_TOKEN, 1))
        place = pieces.index(f"\u2581{word}")
        assert masked == [*plain[:place], tokenizer.mask_id, *plain[place + 1 :]]
    assert tokenizer.encode_masked("<mask>").count(tokenizer.mask_id) == 1
    assert len(tokenizer.encode_masked("<mask>")) == 2
    assert tokenizer.mask_id not in tokenizer.encode_target("a <mask> in a corpus is text")
    assert tokenizer.decode(tokenizer.encode_target("a <mask> in a corpus is text")) == "a <mask> in a corpus is text"


@torch.no_grad()
def test_candidates_are_the_most_likely_tokens(encoder: TextGenerator) -> None:
    [filled] = encoder.fill_masks(["the <mask> sits on <mask>."], num_candidates=7)
    ids = encoder.tokenizer.encode_masked("the <mask> sits on <mask>.")
    logits = encoder.model.logits(torch.tensor([ids]))[0]
    others = [0, 1, 2, 3, encoder.tokenizer.mask_id, *encoder.tokenizer.byte_ids]
    logits[:, others] = -torch.inf  # special tokens and parts of characters are not candidates
    probabilities = torch.softmax(logits, dim=-1)
    places = [place for place, token in enumerate(ids) if token == encoder.tokenizer.mask_id]
    assert len(filled.masks) == len(places) == 2
    for place, candidates in zip(places, filled.masks, strict=True):
        assert len(candidates) == 7
        best = [one.probability for one in candidates]
        assert best == sorted(best, reverse=True)
        assert best == pytest.approx(probabilities[place].topk(7).values.tolist(), rel=1e-4)
    first, second = (candidates[0].text for candidates in filled.masks)
    assert filled.text == f"the{first} sits on{second}."


def test_verbs_of_the_other_kind_are_refused(encoder: TextGenerator, decoder: TextGenerator) -> None:
    with pytest.raises(DecodingError, match="does not continue"):
        encoder.generate(["the"])
    with pytest.raises(DecodingError, match="only an encoder"):
        decoder.fill_masks(["the <mask>"])
    with pytest.raises(TextError, match="text 2 has no <mask>"):
        encoder.fill_masks(["the <mask>", "the cat"])


# ---------------------------------------------------------------------- the model directory


@pytest.mark.parametrize("kind", KINDS)
def test_directory_is_complete_and_described(trained: dict[str, Path], kind: str) -> None:
    verify(trained[kind])
    loaded = load_model(trained[kind])
    assert loaded.config.model.architecture == kind
    assert loaded.config.training.label_smoothing == 0
    rows = info_rows(describe(trained[kind]))
    assert rows[1][0] == "kind"
    assert "heedful generate" in rows[1][1]
    assert "direction" not in dict(rows)
    card = (trained[kind] / "README.md").read_text()
    assert f"{kind}-only Transformer" in card
    assert "small language model" in card
    assert "perplexity" in card
    assert "text.txt" in card
    assert "Direction" not in card and "translate" not in card
    [first, *_] = loaded.details["scores"]
    generator = TextGenerator.load(trained[kind], device="cpu")
    lines = (trained[kind].parent / "test.txt").read_text().splitlines()
    assert first["value"] == pytest.approx(generator.perplexity(lines).token)


@pytest.mark.parametrize("kind", KINDS)
def test_other_engines_and_exports_refuse(trained: dict[str, Path], tmp_path: Path, kind: str) -> None:
    for refused in (
        lambda: export_ctranslate2(trained[kind], tmp_path / "ct2", quantization="float32", overwrite=False),
        lambda: repack(trained[kind], tmp_path / "compact", compact=True),
        lambda: NativeEngine.load(trained[kind]),
    ):
        with pytest.raises(ConfigError, match=rf"model\.architecture={kind}"):
            refused()
    with pytest.raises(ConfigError, match="heedful generate -m"):
        Translator.load(trained[kind], device="cpu")


def test_translation_model_does_not_generate() -> None:
    with pytest.raises(ConfigError, match=r"is a translation model.* use `heedful translate"):
        TextGenerator.load("en-de-zh")


def test_valid_batches_of_an_encoder_predict_masked_tokens_only(folder: Path, trained: dict[str, Path]) -> None:
    prepared = Prepared.open(trained["encoder"] / "training" / "data")
    config = load_model(trained["encoder"]).config
    masking = make_masking(config, prepared)
    [batch, *_] = fixed_batches(
        prepared.valid, 64, 8, prepared.tokenizer.bos_id, prepared.tokenizer.pad_id, masking=masking
    )
    chosen = batch.target_segments > 0
    assert 0 < chosen.sum() < (batch.source_segments > 0).sum() / 2
    assert prepared.tokenizer.mask_id in batch.source[chosen].tolist()


# ---------------------------------------------------------------------- requests


@pytest.mark.parametrize("kind", KINDS)
def test_requests_that_do_not_fit_are_refused(folder: Path, tmp_path: Path, kind: str) -> None:
    pairs = {"source": "a", "target": "b"}
    with pytest.raises(ConfigError, match=f"architecture {kind} needs --text, not --source/--target"):
        build_config(request_for(folder, tmp_path / "x", kind, data__train=[pairs]))
    with pytest.raises(ConfigError, match=f"architecture {kind} needs --text, not --source/--target"):
        build_config(request_for(folder, tmp_path / "x", kind, data__valid=[pairs]))
    for key, value in {"training__num_bleu_sentences": 4, "data__target_tags": True, "tokenizer__joint": False}.items():
        section, name = key.split("__")
        with pytest.raises(ConfigError, match=rf"{section}\.{name}"):
            build_config(request_for(folder, tmp_path / "x", kind, **{key: value}))
    request = request_for(folder, tmp_path / "x", kind)
    del request["data"]["train"]
    with pytest.raises(ConfigError, match="no corpus to train on: give --text"):
        training_pipeline.train(request, quiet=True)


def test_translation_models_refuse_a_single_text(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"architecture=transformer needs two sides.*--model.architecture=decoder"):
        build_config({"data": {"train": [{"text": "corpus.txt"}]}})
    request = request_for(folder, tmp_path / "x", "decoder")
    training_pipeline.prepare_corpora(build_config(request), tmp_path / "prepared", training_pipeline_console())
    with pytest.raises(ConfigError, match="prepared from one text; architecture transformer needs"):
        training_pipeline.train(
            {"output": str(tmp_path / "y"), "data": {"prepared": str(tmp_path / "prepared")}}, quiet=True
        )


def test_encoder_needs_a_tokenizer_with_mask(folder: Path, tmp_path: Path) -> None:
    for seed, side in enumerate(("source", "target")):
        write_text(tmp_path / side, 60, seed=seed)
    request = {"data": {"train": [{"source": str(tmp_path / "source"), "target": str(tmp_path / "target")}]}}
    config = build_config({**request, "tokenizer": {"vocab_size": 310}})
    training_pipeline.prepare_corpora(config, tmp_path / "pairs", training_pipeline_console())
    for kind in KINDS:
        changed = request_for(folder, tmp_path / kind, kind, training__steps=1)
        changed["tokenizer"] = {"path": str(tmp_path / "pairs")}
        if kind == "encoder":
            with pytest.raises(ConfigError, match=r"no <mask>.*leave tokenizer\.path out"):
                training_pipeline.train(changed, quiet=True)
        else:
            assert training_pipeline.train(changed, quiet=True).steps == 1


def test_defaults_of_language_models_may_be_changed() -> None:
    plain = build_config({"model": {"architecture": "decoder"}})
    assert (plain.training.label_smoothing, plain.decoding.method) == (0.0, "sampling")
    changed = build_config({"model": {"architecture": "decoder"}, "training": {"label_smoothing": 0.2}})
    assert changed.training.label_smoothing == 0.2
    assert build_config({}).training.label_smoothing == Config().training.label_smoothing == 0.1


def test_public_name() -> None:
    assert heedful.TextGenerator is TextGenerator
