"""The CTranslate2 engine: results equal to torch for every model option, and errors for unsupported options."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.config import Config, DecodingConfig, ModelConfig, TokenizerConfig
from heedful.decoding.constraints import Constraints
from heedful.decoding.engines import ctranslate2_engine
from heedful.decoding.engines.ctranslate2_engine import CTranslate2Engine, load_ctranslate2
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search import alignment_weights, force_decode
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError
from heedful.interop.export import export_ctranslate2
from heedful.model.transformer import Transformer
from heedful.model_dir import save_model
from heedful.model_dir.ctranslate2_format import ctranslate2_files
from heedful.model_dir.save_load import KEY, AlignmentSource, ModelArrays
from heedful.search_types import DecodeRequest
from heedful.text.tokenizer import Tokenizer, train_tokenizer
from tests.small_models import VARIANTS, build

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the package ctranslate2: pip install 'heedful[dev]'")

NOT_GLOBAL = ("local", "local_monotonic", "local_predictive", "hard")
REFUSED = {
    name for name, config in VARIANTS.items() if config.norm == "batch" or "additive" in name or name in NOT_GLOBAL
}
ACCEPTED = sorted(set(VARIANTS) - REFUSED)
DIGITS = [
    " ".join(f"{number:06d}"[6 - length :]) for length in (2, 4, 6) for number in range(7, 10**length, 10**length // 40)
]


class NumberedPieces(Tokenizer):
    """A vocabulary without a tokenizer: the four special tokens, then p4, p5, …"""

    joint, tags, control_ids, byte_ids, broken_ids = True, (), (), (), ()
    source_vocab_size = target_vocab_size = 0

    def __init__(self, config: ModelConfig) -> None:
        self.source_vocab_size, self.target_vocab_size = config.source_vocab_size, config.target_vocab_size

    def pieces(self, ids):
        return [["<pad>", "<unk>", "<s>", "</s>"][number] if number < 4 else f"p{number}" for number in ids]

    source_pieces = pieces


def engine_of(model: Transformer, *, details: Mapping[str, object] | None = None, **options) -> CTranslate2Engine:
    tokenizer = NumberedPieces(model.config)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    files = ctranslate2_files(ModelArrays(weights, Config(model=model.config), tokenizer, details or {}), **options)
    translator = ctranslate2.Translator("model", files=files, compute_type=options.get("quantization", "float32"))
    return CTranslate2Engine(translator, tokenizer, max_length=model.config.max_length)


# ---- every option of the model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACCEPTED)
def test_model_options_give_equal_log_probs_and_greedy_translations(name: str) -> None:
    model = build(VARIANTS[name]).eval()
    theirs = engine_of(model)
    drawn = np.random.default_rng(1)
    sources = [[*drawn.integers(4, 11, size).tolist(), 3] for size in (1, 3, 7, 12)]
    targets = [[*drawn.integers(4, 13, size).tolist(), 3] for size in (5, 1, 9, 14)]
    pieces = NumberedPieces(model.config).pieces
    scored = theirs.translator.score_batch([pieces(one[:-1]) for one in sources], [pieces(one[:-1]) for one in targets])
    for source, target, found in zip(sources, targets, scored, strict=True):
        row = torch.tensor([source])
        [expected] = force_decode(model, row, torch.ones_like(row, dtype=torch.bool), [target], bos_id=2)
        assert found.log_probs == pytest.approx(expected.token_log_probs, abs=2e-5)

    requests = [DecodeRequest(tuple(source), (), "", 9) for source in sources]
    ours = TorchEngine(model, theirs.special)
    greedy = DecodingConfig(method="greedy")
    expected, found = (
        engine.decode(requests, greedy, align=False, constraint_factory=None) for engine in (ours, theirs)
    )
    assert [found[request].hypotheses[0].tokens for request in requests] == [
        expected[request].hypotheses[0].tokens for request in requests
    ]
    assert [found[request].hypotheses[0].finished for request in requests] == [
        expected[request].hypotheses[0].finished for request in requests
    ]


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (None, None),
        ({"layer": 0, "offset": 0}, AlignmentSource(0, 0)),
        ({"layer": 0, "offset": 0, "head": 0}, AlignmentSource(0, 0, head=0)),
        ({"layer": 0, "offset": 0, "head": 1}, AlignmentSource(0, 0)),
        ({"layer": 0, "offset": 1, "head": 1}, None),
    ],
    ids=str,
)
def test_ctranslate2_returns_the_recorded_attention_as_far_as_it_can(
    layers: int, record: dict[str, int] | None, expected: AlignmentSource | None
) -> None:
    model = build(replace(VARIANTS["paper"], num_decoder_layers=layers)).eval()
    theirs = engine_of(model, details={} if record is None else {KEY: record})
    source = [5, 8, 10, 4, 3]
    [found] = theirs.translator.translate_batch(
        [NumberedPieces(model.config).pieces(source[:-1])], beam_size=1, max_decoding_length=6, return_attention=True
    )
    pieces, row = found.hypotheses[0], torch.tensor([source])
    target = [theirs.ids[piece] for piece in pieces]
    [forced] = force_decode(
        model, row, torch.ones_like(row, dtype=torch.bool), [[*target, 3]], bos_id=2, need_weights=True
    )
    weights = alignment_weights(forced.attention, expected)[: len(found.attention[0])]
    np.testing.assert_allclose(found.attention[0], weights[:, :-1], atol=2e-5)  # CTranslate2 adds the end token


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_unsupported_option_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.(norm=batch|attention_scoring=additive|(self|cross)_attention=)"):
        engine_of(build(VARIANTS[name]))


@pytest.mark.parametrize("architecture", ["recurrent", "convolutional"])
def test_other_architectures_are_refused_by_name(architecture: str) -> None:
    config = replace(VARIANTS["paper"], architecture=architecture)
    with pytest.raises(ConfigError, match=f"architecture={architecture}"):
        ctranslate2_files(ModelArrays({}, Config(model=config), NumberedPieces(config), {}))


# ---- translations of a trained model ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model partly trained to reverse digits: it generates end tokens, and its probabilities are not extreme."""
    torch.manual_seed(1)
    tokenizer = train_tokenizer([(text, text[::-1]) for text in DIGITS], TokenizerConfig(byte_fallback=False))
    size = tokenizer.target_vocab_size
    config = ModelConfig(
        source_vocab_size=size, target_vocab_size=size, d_model=32, d_ff=64, num_heads=2,
        num_encoder_layers=1, num_decoder_layers=1, max_length=40, dropout=0.0,
    )  # fmt: skip
    model = Transformer(config)
    learn_to_reverse(model, tokenizer)
    path = tmp_path_factory.mktemp("models") / "digits"
    whole = Config(model=config)
    save_model(path, weights=model, config=whole, tokenizer=tokenizer, details={"lengths": {"source_p99": 7}})
    return path


def learn_to_reverse(model: Transformer, tokenizer) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    by_length: dict[int, list[str]] = {}
    for text in DIGITS:
        by_length.setdefault(len(tokenizer.encode_source(text)), []).append(text)
    for _ in range(60):
        for texts in by_length.values():
            source = torch.tensor([tokenizer.encode_source(text) for text in texts])
            target = torch.tensor([tokenizer.encode_target(text[::-1]) for text in texts])
            start = torch.full_like(target[:, :1], tokenizer.bos_id)
            logits = model(source, torch.cat([start, target[:, :-1]], dim=1))
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), label_smoothing=0.1).backward()
            optimizer.step()


@pytest.fixture(scope="module")
def ours(directory: Path) -> Translator:
    return Translator.load(directory, device="cpu", engine="torch")


@pytest.fixture(scope="module")
def theirs(directory: Path) -> Translator:
    return Translator.load(directory, device="cpu", engine="ctranslate2")


SEARCHES = [
    {"method": "greedy"},
    {"beam_size": 1},
    {},
    {"beam_size": 8},
    {"length_penalty": "average"},
    {"length_penalty": "average", "length_penalty_alpha": 1.0},
    {"length_penalty": "none"},
    {"length_penalty_alpha": 0.0},
    {"method": "greedy", "max_length": 3},
    {"tokens_per_batch": 40},
    {"split": "always"},
]


@pytest.mark.parametrize("settings", SEARCHES, ids=str)
def test_translations_equal_torch(ours: Translator, theirs: Translator, settings: dict[str, object]) -> None:
    expected, found = (translator.translate(DIGITS, **settings) for translator in (ours, theirs))
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    assert [one.finished for one in found] == [one.finished for one in expected]
    # CTranslate2 redistributes the probability of forbidden tokens; how much depends on the training.
    assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in expected], abs=0.2)
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=0.2)
    assert len({len(one.tokens) for one in expected}) > 1 or "max_length" in settings


def test_cut_off_translation_includes_end_token_score(ours: Translator, theirs: Translator) -> None:
    for settings in ({"max_length": 3}, {"max_length": 3, "length_penalty": "none"}):
        expected, found = (translator.translate(DIGITS, **settings) for translator in (ours, theirs))
        same = [(one, other) for one, other in zip(found, expected, strict=True) if one.tokens == other.tokens]
        assert len(same) > 0.9 * len(DIGITS)  # the engines may cut different hypotheses, which can change the best one
        assert sum(not one.finished for one, _ in same) > 0.3 * len(DIGITS)
        assert all(len(one.tokens) <= 3 for one in found)
        assert [one.log_prob for one, _ in same] == pytest.approx([one.log_prob for _, one in same], abs=0.1)


@pytest.mark.parametrize("settings", [{}, {"length_penalty": "average"}, {"length_penalty": "none"}], ids=str)
def test_n_best_lists_equal_torch_after_renormalisation(
    monkeypatch: pytest.MonkeyPatch, ours: Translator, theirs: Translator, settings: dict[str, object]
) -> None:
    def normalised(logits: torch.Tensor, history: torch.Tensor, constraints: Constraints) -> torch.Tensor:
        allowed = logits.float().index_fill(1, constraints.forbidden, -torch.inf)
        return constraints.apply(torch.log_softmax(allowed, dim=-1), history)

    monkeypatch.setattr("heedful.decoding.search.allowed_log_probs", normalised)
    monkeypatch.setattr(ctranslate2_engine, "PATIENCE", 16)
    expected, found = (translator.translate(DIGITS, num_best=4, **settings) for translator in (ours, theirs))
    for mine, other in zip(expected, found, strict=True):
        assert [one.tokens for one in other.n_best] == [one.tokens for one in mine.n_best]
        assert [one.score for one in other.n_best] == pytest.approx([one.score for one in mine.n_best], abs=1e-4)


def test_long_input_is_split_and_empty_input_stays_empty(ours: Translator, theirs: Translator) -> None:
    texts = ["1 2 3 4 5 6. " * 20 + "\n" + "1 2 3", "", "  "]
    expected, found = (translator.translate(texts) for translator in (ours, theirs))
    assert found[0].num_sentences == expected[0].num_sentences > 4
    assert [one.text for one in found] == [one.text for one in expected]


def test_separate_vocabularies_and_language_tags() -> None:
    tokenizer = train_tokenizer(
        [(text, text[::-1]) for text in DIGITS], TokenizerConfig(joint=False, byte_fallback=False), tags=("aa", "bb")
    )  # fmt: skip
    torch.manual_seed(3)
    config = ModelConfig(
        source_vocab_size=tokenizer.source_vocab_size + 3, target_vocab_size=tokenizer.target_vocab_size, d_model=16,
        d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, max_length=24, tying="target",
    )  # fmt: skip
    model = Transformer(config).eval()
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    files = ctranslate2_files(ModelArrays(weights, Config(model=config), tokenizer, {}))
    assert {"source_vocabulary.json", "target_vocabulary.json"} < set(files)
    engine = CTranslate2Engine(ctranslate2.Translator("model", files=files), tokenizer, max_length=24)
    expected, found = (
        Translator(one, tokenizer).translate(DIGITS[:9], target_language="bb", method="greedy", max_extra_length=4)
        for one in (model, engine)
    )
    assert [one.tokens for one in found] == [one.tokens for one in expected]


# ---- int8 and float16 ------------------------------------------------------------------------------------------------


def test_int8_translations_are_close_to_float32(theirs: Translator, directory: Path, tmp_path: Path) -> None:
    exported = export_ctranslate2(directory, tmp_path / "int8", quantization="int8")
    small, in_memory = (
        Translator.load(exported, device="cpu"),
        Translator.load(directory, device="cpu", engine="ctranslate2", quantization="int8"),
    )
    assert isinstance(small.engine, CTranslate2Engine)
    expected, found = theirs.translate(DIGITS), small.translate(DIGITS)
    assert sum(one.tokens == other.tokens for one, other in zip(found, expected, strict=True)) > 0.9 * len(DIGITS)
    assert found == in_memory.translate(DIGITS)
    assert [one.log_prob for one in found] != [one.log_prob for one in expected]


def test_exported_float32_model_gives_same_results(theirs: Translator, directory: Path, tmp_path: Path) -> None:
    exported = Translator.load(export_ctranslate2(directory, tmp_path / "exported"), device="cpu")
    assert exported.typical_length == theirs.typical_length == 32
    assert exported.translate(DIGITS) == theirs.translate(DIGITS)


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"method": "sampling"}, "method=sampling"),
        ({"min_length": 3}, "min_length=3"),
        ({"no_repeat_ngram_size": 2}, "no_repeat_ngram_size=2"),
        ({"align": True}, "alignment"),
        ({"target_prefix": ["1"]}, "target prefix"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(theirs: Translator, wanted: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        theirs.translate(["1 2 3"], **wanted)


def test_token_constraint_is_refused(theirs: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theirs, "constraint_factory", lambda texts, max_lengths, device: None)
    with pytest.raises(ConfigError, match="token constraint"):
        theirs.translate(["1 2 3"])


def test_invalid_engine_settings_are_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong, named in (
        ({"engine": "ctranslate"}, "did you mean 'ctranslate2'"),
        ({"engine": "torch", "quantization": "int8"}, "quantization=int8"),
        ({"engine": "ctranslate2", "quantization": "int4"}, "int4"),
        ({"engine": "ctranslate2", "device": "mps"}, "mps"),
    ):
        with pytest.raises(ConfigError, match=named):
            Translator.load(directory, **{"device": "cpu", **wrong})
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ConfigError, match=r"heedful\[ctranslate2\]"):
        load_ctranslate2(directory)
