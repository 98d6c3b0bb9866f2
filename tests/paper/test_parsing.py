"""Trees as symbols and back, whole-symbol vocabularies, and a parser trained on a small grammar."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful import cli
from heedful.config import TokenizerConfig
from heedful.config_loading import build_config
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError, ModelDirectoryError
from heedful.evaluation.evalb import (
    Span,
    Tree,
    aggregate,
    normalize_tree,
    read_predicted_trees,
    read_tree,
    read_trees,
    score_trees,
)
from heedful.paper.parsing import (
    KINDS,
    XX_SYMBOLS,
    Parser,
    ParseResult,
    WordSymbols,
    bracket_symbols,
    linearize,
    rebuild,
    word_symbols_of,
)
from heedful.paper.table4 import PAPER_ROWS, WORDS, Treebanks, parsing_request, run_table4, set_name, tag_accuracy
from heedful.text.tokenizer import Tokenizer, train_tokenizer
from tests.paper.toy_trees import toy_trees

# ---- symbols ---------------------------------------------------------------------------------------------------------


def test_linearize_example_from_paper():
    tree = read_tree("(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))")
    symbols = "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S".split()
    assert linearize(tree) == symbols
    assert rebuild(symbols, tree.words, tree.tags) == tree
    assert rebuild(symbols, tree.words).tags == ("XX",) * 5


@st.composite
def any_tree(draw: Any) -> Tree:
    """Any tree: brackets opened and closed at random around the words."""
    num_words = draw(st.integers(1, 7))
    spans: list[list[Any]] = []
    stack: list[int] = []
    for word in range(num_words):
        for _ in range(draw(st.integers(0 if spans else 1, 3))):
            stack.append(len(spans))
            spans.append([draw(st.sampled_from(["S", "NP", "XX", "NP-X", "é"])), word, word])
        closing = draw(st.integers(0, len(stack) - 1)) if word < num_words - 1 else len(stack)
        for _ in range(closing):
            spans[stack.pop()][2] = word + 1
    words = draw(st.lists(st.sampled_from(["a", "XX", "日本", "-LRB-"]), min_size=num_words, max_size=num_words))
    return Tree(tuple(words), ("T",) * num_words, tuple(Span(*span) for span in spans))


@given(any_tree())
def test_linearize_round_trip(tree: Tree):
    assert rebuild(linearize(tree), tree.words, tree.tags) == tree
    assert read_tree(str(tree)) == tree


@pytest.mark.parametrize(
    ("kind", "source", "target"),
    [
        ("xx", "John sat", "(S (NP XX )NP XX )S"),
        ("index", "John<w0> sat<w1>", "(S (NP <w0> )NP <w1> )S"),
        ("tags", "John sat", "(S (NP NNP )NP VBD )S"),
    ],
)
def test_word_symbols(kind: str, source: str, target: str):
    tree = read_tree("(S (NP (NNP John)) (VBD sat))")
    word_symbols = WordSymbols(kind)
    assert word_symbols.source_text(tree.words) == source
    assert " ".join(linearize(tree, word_symbols)) == target
    again = rebuild(target.split(), tree.words, word_symbols=word_symbols)
    assert again.spans == tree.spans
    assert again.tags == (("NNP", "VBD") if kind == "tags" else ("XX", "XX"))


@given(any_tree(), st.sampled_from(KINDS), st.integers(1, 9))
def test_linearize_round_trip_for_all_word_symbols(tree: Tree, kind: str, cycle: int):
    word_symbols = WordSymbols(kind, cycle)
    symbols = linearize(tree, word_symbols)
    assert rebuild(symbols, tree.words, tree.tags, word_symbols=word_symbols) == tree
    assert len(word_symbols.source_text(tree.words).split(" ")) == len(tree.words)


def test_indices_must_be_in_order():
    for symbols in ("(S <w1> <w0> )S", "(S <w0> <w0> )S"):
        with pytest.raises(ValueError, match="another word's symbol"):
            rebuild(symbols.split(), ["a", "b"], word_symbols=WordSymbols("index"))
    around = rebuild("(S <w0> <w1> <w0> )S".split(), ["a", "b", "c"], word_symbols=WordSymbols("index", cycle=2))
    assert around.spans == (Span("S", 0, 3),)
    with pytest.raises(ValueError, match="does not fit"):
        rebuild("(S NN ⁇ )S".split(), ["a", "b"], word_symbols=WordSymbols("tags"))


def test_tag_accuracy():
    gold = [read_tree("(S (NN a) (VB b))"), read_tree("(S (NN a))"), read_tree("(S (NN a) (NN b))")]
    guesses = [ParseResult(read_tree("(S (NN a) (NN b))")), ParseResult(None, problem="none"), ParseResult(gold[2])]
    assert tag_accuracy(gold, guesses) == 75
    assert tag_accuracy(gold[1:2], guesses[1:2]) == 0


def test_word_symbols_are_read_from_vocabulary():
    assert word_symbols_of(["XX"]) == WordSymbols("xx")
    assert word_symbols_of(["<w1>", "<w0>", "<w2>"]) == WordSymbols("index", cycle=3)
    assert word_symbols_of(WordSymbols("index").markers) == WordSymbols("index")
    assert word_symbols_of(["NN", "XX", "VB"]).kind == word_symbols_of(["<w0>", "NN"]).kind == "tags"


@pytest.mark.parametrize(
    ("symbols", "problem"),
    [
        ("", "no symbols"),
        ("(S XX", "1 brackets are not closed"),
        ("(S XX )NP", "')NP' does not fit"),
        ("(S XX )S )S", "after the tree is closed"),
        ("XX", "outside all brackets"),
        ("(S (NP )NP XX )S", "without words"),
        ("(S XX XX )S", "2 words where the sentence has 1"),
        ("(S XX )S (S XX )S", "after the tree is closed"),
        ("(S ⁇ XX )S", "does not fit"),
        ("( XX )", "does not fit"),
    ],
)
def test_rebuild_reports_invalid_trees(symbols: str, problem: str):
    with pytest.raises(ValueError, match=problem.replace("(", r"\(").replace(")", r"\)")):
        rebuild(symbols.split(), ["word"])


# ---- vocabulary ------------------------------------------------------------------------------------------------------


def pairs_of(trees: list[str]) -> list[tuple[str, str]]:
    read = [normalize_tree(read_tree(text)) for text in trees]
    return [(XX_SYMBOLS.source_text(tree.words), " ".join(linearize(tree))) for tree in read]


def test_target_has_one_token_per_symbol(tmp_path: Path):
    pairs = [*pairs_of(toy_trees(80, 1)), ("long", " ".join(["(S", *["XX"] * 3000, ")S", "(é|-", ")é|-"]))]
    made = train_tokenizer(pairs, TokenizerConfig(joint=False, target_kind="word"))
    made.save(tmp_path)
    for tokenizer in (made, Tokenizer.load(tmp_path)):
        for source, target in pairs:
            ids = tokenizer.encode_target(target)
            assert len(ids) == len(target.split()) + 1
            assert tokenizer.unk_id not in ids
            assert tokenizer.decode(ids) == target
            assert tokenizer.decode_source(tokenizer.encode_source(source)) == source
        assert tokenizer.target_vocab_size == 4 + len({symbol for _, target in pairs for symbol in target.split()})
    symbols, word_symbols = bracket_symbols(made)
    assert len(symbols.pairs) == 6  # S NP VP PP SBAR é|-
    for opening, closing in symbols.pairs:
        assert made.decode([opening])[1:] == made.decode([closing])[1:]
    assert made.decode(symbols.word_ids) == "XX"
    assert word_symbols == XX_SYMBOLS


def test_word_index_is_one_token():
    trees = [normalize_tree(read_tree(text)) for text in toy_trees(60, 1)]
    word_symbols = WordSymbols("index")
    pairs = [(word_symbols.source_text(tree.words), " ".join(linearize(tree, word_symbols))) for tree in trees]
    settings = TokenizerConfig(joint=False, target_kind="word", user_defined_symbols=tuple(word_symbols.markers))
    tokenizer = train_tokenizer(pairs, settings)
    for (source, _), tree in zip(pairs, trees, strict=True):
        ids = tokenizer.encode_source(source)
        pieces = tokenizer.source_pieces(ids)
        assert [piece for piece in pieces if piece.startswith("<w")] == word_symbols.of(tree.tags)
        assert tokenizer.decode_source(ids) == source
    symbols, found = bracket_symbols(tokenizer)
    longest = max(len(tree.words) for tree in trees)
    assert found == WordSymbols("index", cycle=longest)
    assert symbols.numbered
    assert tokenizer.decode(symbols.word_ids).split() == word_symbols.markers[:longest]


@pytest.mark.parametrize("symbols", [("",), ("a b",), ("<s>",), ("<a>", "<a>")])
def test_invalid_user_defined_symbols(symbols: tuple[str, ...]):
    with pytest.raises(ConfigError, match=r"tokenizer\.user_defined_symbols"):
        TokenizerConfig(user_defined_symbols=symbols)


def test_word_targets_need_separate_vocabulary():
    with pytest.raises(ConfigError, match=r"tokenizer\.joint=false"):
        TokenizerConfig(target_kind="word")


@pytest.mark.parametrize("target", ["c d", "c ( d ) e"])  # brackets alone are not labels
def test_parser_needs_bracket_vocabulary(target: str):
    tokenizer = train_tokenizer([("a b", target)] * 20, TokenizerConfig(joint=False, target_kind="word"))
    with pytest.raises(ModelDirectoryError, match="not a parser"):
        bracket_symbols(tokenizer)


# ---- the experiment --------------------------------------------------------------------------------------------------

SMALL = {
    "preset": "tiny",
    "data": {"row_width": 128},
    "model": {"d_model": 64, "d_ff": 256, "num_heads": 2, "dropout": 0.0},
    "training": {
        "steps": 450,
        "tokens_per_step": 512,
        "learning_rate": 5e-3,
        "label_smoothing": 0.0,
        "tensorboard": False,
        "device": "cpu",
    },
    "decoding": {"beam_size": 2},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("toy")
    paths = {}
    for role, count, seed in (("train", 600, 1), ("valid", 40, 2), ("test", 50, 3)):
        paths[role] = folder / f"{role}.trees"
        paths[role].write_text("\n".join(toy_trees(count, seed)) + "\n", encoding="utf-8")
    return paths


@pytest.fixture(scope="module")
def run(files: dict[str, Path]) -> tuple[Path, dict[str, Any]]:
    """A parser that is trained once, for all tests below."""
    output = files["train"].parent / "out"
    banks = Treebanks(train=[files["train"]], valid=[files["valid"]], test=[files["test"]])
    return output, run_table4({**SMALL, "output": str(output)}, banks, words="xx", quiet=True, command="heedful …")


@pytest.mark.slow
def test_parser_learns_small_grammar(run: tuple[Path, dict[str, Any]]):
    output, results = run
    [test] = results["tests"]
    assert results["complete"]
    assert test["forced"]["all"]["f1"] > 95
    assert test["forced"]["all"]["num_failed"] == 0
    assert test["forced"]["all"]["num_sentences"] == test["free"]["all"]["num_sentences"] == 50
    assert sum(test["free"]["problems"].values()) == test["free"]["all"]["num_failed"]
    assert json.loads((output / "results.json").read_text("utf-8")) == json.loads(json.dumps(results))
    page = (output / "table4.md").read_text("utf-8")
    assert "not comparable" in page
    assert "92.7" in page
    assert f"{test['forced']['all']['f1']:.1f}" in page


@pytest.mark.slow
def test_f1_of_tree_files_equals_results(
    run: tuple[Path, dict[str, Any]], files: dict[str, Path], capsys: pytest.CaptureFixture[str]
):
    output, results = run
    [test] = results["tests"]
    gold = read_trees(files["test"])
    for way in ("forced", "free"):
        path = output / f"{test['name']}.{way}.trees"
        guesses = read_predicted_trees(path)
        assert aggregate(score_trees(gold, guesses)).to_dict() == test[way]["all"]
        assert all(tree.tags == right.tags for tree, right in zip(guesses, gold, strict=True) if tree is not None)
        assert cli.run(["paper", "f1", "--json", str(files["test"]), str(path)]) == 0
        assert json.loads(capsys.readouterr().out)["all"] == test[way]["all"]
    assert cli.run(["paper", "f1", str(files["test"]), str(files["test"])]) == 0
    assert "100.00" in capsys.readouterr().out


@pytest.mark.slow
def test_parser_model_directory(run: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]):
    model = str(run[0] / "model")
    text = "the cat sees the old dog ."
    expected = "(S (NP (XX the) (XX cat)) (VP (XX sees) (NP (XX the) (XX old) (XX dog))) (XX .))"
    assert cli.run(["paper", "parse", "-m", model, text, "the ( bird ) sleeps"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == expected
    assert read_tree(second).words == ("the", "-LRB-", "bird", "-RRB-", "sleeps")  # a complete tree in any case
    assert cli.run(["paper", "parse", "-m", model, "--tree", text]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == ["S", "  NP", "    XX the"]
    assert cli.run(["translate", "-m", model, text]) == 0
    assert capsys.readouterr().out.split() == linearize(read_tree(expected))


@pytest.mark.slow
def test_forced_equals_free_where_free_is_a_tree(run: tuple[Path, dict[str, Any]], files: dict[str, Path]):
    """In greedy search, every step that satisfies the constraint is the same."""
    model = run[0] / "model"
    sentences = [tree.words for tree in read_trees(files["test"])]
    forced = Parser.load(model, device="cpu").parse(sentences, method="greedy")
    free = Parser.load(model, device="cpu", forced=False).parse(sentences, method="greedy")
    agreeing = [(one, other) for one, other in zip(forced, free, strict=True) if other.tree is not None]
    assert agreeing
    assert all(one.tree == other.tree for one, other in agreeing)
    assert all(one.tree is not None for one in forced)
    assert all((one.tree is None) == (one.problem is not None) for one in free)


@pytest.mark.slow
def test_too_long_sentence_gets_no_tree(run: tuple[Path, dict[str, Any]]):
    translator = Translator.load(run[0] / "model", device="cpu")
    assert translator.config == replace(translator.config, split="never", max_extra_length=300)
    long, short = Parser(translator).parse([["the"] * 1100, ["the", "cat", "sleeps", "."]])
    assert (long.tree, long.problem) == (None, "the sentence is longer than the model accepts")
    assert short.tree is not None


@pytest.mark.slow
def test_finished_run_is_kept_or_resumed(run: tuple[Path, dict[str, Any]], files: dict[str, Path], tmp_path: Path):
    output, results = run
    banks = Treebanks(train=[files["train"]], valid=[files["valid"]], test=[files["test"]])
    request = {**SMALL, "output": str(output)}
    with pytest.raises(ConfigError, match="--resume"):
        run_table4(request, banks, words="xx", quiet=True)
    again = run_table4(request, banks, words="xx", brackets="forced", language="zh", resume=True, quiet=True)
    assert again["steps"] == results["steps"]
    assert again["tests"][0]["forced"] == results["tests"][0]["forced"]
    assert "free" not in again["tests"][0]
    (tmp_path / "other").write_text("x")
    with pytest.raises(ConfigError, match="other files"):
        run_table4({**SMALL, "output": str(tmp_path)}, banks, quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "steps", "least"), [("index", 200, 80), ("tags", 60, 10)])
def test_index_and_tag_symbols_are_learned(
    words: str, steps: int, least: float, files: dict[str, Path], tmp_path: Path
):
    """The weights are selected by F1 on valid; held-out sentences are looked up by their words."""
    chosen_by = {"num_bleu_sentences": 10, "best_metric": "bleu", "num_samples": 1, "validate_every": steps // 2}
    training = {**SMALL["training"], "steps": steps, **chosen_by}
    request = {**SMALL, "training": training, "output": str(tmp_path / "out")}
    banks = Treebanks(train=[files["train"]], test=[files["test"]], sentences=20)
    results = run_table4(request, banks, words=words, brackets="forced", quiet=True)
    [test] = results["tests"]
    assert results["words"] == words
    assert test["forced"]["all"]["num_sentences"] == 20
    assert test["forced"]["all"]["f1"] > least
    assert ("tag_accuracy" in test["forced"]) == (words == "tags")
    log = (tmp_path / "out" / "model" / "training" / "log.jsonl").read_text("utf-8").splitlines()
    valid = [event for event in map(json.loads, log) if event["event"] == "valid"]
    assert {event["score_name"] for event in valid} == {"F1"}
    assert results["valid_f1"] == max(event["bleu"] for event in valid) > least
    assert valid[0]["samples"][0]["translation"].startswith("(")
    parser = Parser.load(tmp_path / "out" / "model", device="cpu")
    assert parser.word_symbols.kind == words
    long = ["the", "cat", "sees", "the", "dog"] * 8  # more words than the numbers in the vocabulary
    [guess] = parser.parse([long], max_extra_length=20)
    assert guess.tree is not None
    assert guess.tree.words == tuple(long)
    assert set(guess.tree.tags) <= ({"DT", "NN", "JJ", "VBZ", "IN", "."} if words == "tags" else {"XX"})


# ---- settings --------------------------------------------------------------------------------------------------------


def test_paper_size_of_parser():
    import torch

    config = build_config(parsing_request({}, device=torch.device("cuda"), paper=True))
    assert (config.model.num_encoder_layers, config.model.num_decoder_layers, config.model.d_model) == (4, 4, 1024)
    assert (config.decoding.beam_size, config.decoding.length_penalty_alpha) == (21, 0.3)
    assert config.decoding.max_extra_length == 300
    named = build_config(parsing_request({"preset": "tiny"}, device=torch.device("cpu"), paper=False))
    assert (named.model.d_model, named.model.num_encoder_layers) == (128, 2)
    assert named.tokenizer.target_kind == "word"
    with pytest.raises(ConfigError, match="exclude each other"):
        parsing_request({"preset": "tiny"}, device=torch.device("cpu"), paper=True)


def test_gpu_recipe_for_parsing():
    import torch

    request = parsing_request({}, device=torch.device("cuda"), paper=False, word_symbols=WordSymbols("index"))
    config = build_config(request)
    assert (config.training.r_drop, config.training.best_metric) == (1.0, "bleu")
    assert config.training.epochs == 60
    assert config.tokenizer.user_defined_symbols[:2] == ("<w0>", "<w1>")
    assert (
        build_config(parsing_request({}, device=torch.device("cuda"), paper=False)).tokenizer.user_defined_symbols == ()
    )


def test_names_of_test_sets():
    assert set_name("/data/craft/test.trees.xz", []) == "craft-test"
    assert set_name("test.trees", []) == "test"
    assert set_name("a/test.trees", ["a-test"]) == "a-test-2"


def test_table4_rows_and_texts():
    assert max(f1 for _, _, f1 in PAPER_ROWS) == 93.3
    assert WORDS["en"].keys() == WORDS["zh"].keys()
    assert len(WORDS["en"]["columns"]) == len(WORDS["zh"]["columns"])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["paper", "table4"], "--train FILE and --test FILE"),
        (["paper", "table4", "--train", "no.trees", "--test", "no.trees"], "no.trees: there is no such file"),
        (["paper", "table4", "--train", "a", "--test", "a", "--brackets", "force"], "did you mean 'forced'"),
        (["paper", "table4", "--train", "a", "--test", "a", "--words", "idx"], "not one of xx, index, tags"),
        (["paper", "table4", "--train", "a", "--test", "a", "--sentences", "0"], "--sentences must be 1 or more"),
        (["paper", "table4", "--train", "a", "--test", "a", "--lang", "de"], "not one of en, zh"),
        (["paper", "table4", "--train", "a", "--test", "a", "--model.dropot=1"], "dropout"),
        (["paper", "f1", "no.trees", "no.trees"], "there is no such file"),
        (["paper", "parse", "-m", "no-model", "x"], "no such model directory"),
    ],
)
def test_parsing_errors_are_one_line(
    arguments: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert cli.run(arguments) == 2
    text = capsys.readouterr().err
    assert problem in text
    assert text.count("\n") == 1
