"""Several language pairs in one model: sampling weights, source tags, and one tokenizer."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heedful.config import Config, CorpusConfig, DataConfig, TokenizerConfig
from heedful.config_loading import from_mapping
from heedful.data.prepare import Prepared, prepare
from heedful.data.shuffle import EpochOrder
from heedful.errors import ConfigError
from heedful.search_types import special_tokens
from heedful.text.tokenizer import Tokenizer

WORDS = {
    "en": "red green blue house tree river walks sleeps under over".split(),
    "de": "rot grün blau haus baum fluss geht schläft unter über".split(),
    "zh": "红 绿 蓝 房子 树 河 走 睡觉 下面 上面".split(),
}
SIZES = {"de": 400, "zh": 100}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    folder, drawn = tmp_path_factory.mktemp("corpora"), random.Random(1)
    files = {}
    for language, size in SIZES.items():
        lines = {tuple(drawn.randrange(10) for _ in range(6)) for _ in range(size)}
        for code in ("en", language):
            text = "".join(" ".join(WORDS[code][n] for n in line) + "\n" for line in sorted(lines))
            (folder / f"{language}.{code}").write_text(text, encoding="utf-8")
        files[language] = (str(folder / f"{language}.en"), str(folder / f"{language}.{language}"))
    return files


def prepared(corpora: dict[str, tuple[str, str]], folder: Path, *, both: bool = True, **changes: Any) -> Prepared:
    source_tags = changes.pop("source_tags", {})
    train = tuple(
        CorpusConfig(
            *files, source_language="en", target_language=code, both_directions=both, source_tag=source_tags.get(code)
        )
        for code, files in corpora.items()
    )
    data = DataConfig(train=train, num_valid_pairs=10, num_workers=1, **changes)
    return prepare(data, TokenizerConfig(vocab_size=380), folder, seed=1)


def shown(found: Prepared, epoch: int = 0) -> Counter[int]:
    order = EpochOrder(found.train, weights=None, seed=1)
    pairs = order.pairs(epoch, 0, order.size(epoch))
    return Counter(found.train.corpora[pairs].tolist())


def test_temperature_evens_out_the_languages(corpora: dict[str, tuple[str, str]], tmp_path: Path) -> None:
    plain = shown(prepared(corpora, tmp_path / "plain"))
    ratio = plain[0] / plain[1]
    assert ratio > 3.5
    warm = prepared(corpora, tmp_path / "warm", temperature=2.0)
    assert warm.train.corpus_weights[0] == 1.0
    assert warm.train.corpus_weights[1] == pytest.approx(ratio**0.5, rel=0.02)
    assert shown(warm)[0] / shown(warm)[1] == pytest.approx(ratio**0.5, rel=0.05)
    hot = shown(prepared(corpora, tmp_path / "hot", temperature=100.0))
    assert hot[0] / hot[1] == pytest.approx(1.0, rel=0.05)
    assert hot[0] == plain[0]  # the largest is shown as often as before
    with pytest.raises(ConfigError, match=r"data\.temperature"):
        DataConfig(temperature=0.5)


def test_the_order_with_a_temperature_is_a_pure_function(corpora: dict[str, tuple[str, str]], tmp_path: Path) -> None:
    first, again = (prepared(corpora, tmp_path / name, temperature=3.0) for name in ("first", "again"))
    orders = [EpochOrder(one.train, weights=None, seed=4) for one in (first, again)]
    for epoch in (0, 3):
        size = orders[0].size(epoch)
        whole = orders[0].pairs(epoch, 0, size)
        assert np.array_equal(whole[50:90], orders[1].pairs(epoch, 50, 90))  # any position, without earlier batches
        assert set(whole.tolist()) == set(range(len(first.train)))


def test_both_directions_of_several_pairs_get_their_tags(corpora: dict[str, tuple[str, str]], tmp_path: Path) -> None:
    found = prepared(corpora, tmp_path)
    assert found.tokenizer.tags == ("de", "en", "zh")
    tags = {found.tokenizer.encode_source("", tag)[0]: tag for tag in found.tokenizer.tags}
    counts = Counter(tags[found.train.pair(place)[0][0]] for place in range(len(found.train)))
    assert counts["en"] == counts["de"] + counts["zh"]
    for text in ("红房子在河上面", "Schläft das Haus? ß", "龘"):  # unseen characters are encoded as bytes
        assert found.tokenizer.decode(found.tokenizer.encode_target(text)) == text


def test_source_tag_precedes_only_the_sources_of_its_corpus(
    corpora: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    found = prepared(corpora, tmp_path, both=False, source_tags={"zh": "back-translated"})
    tokenizer = found.tokenizer
    assert tokenizer.source_tags == ("back-translated",)
    tag_id = tokenizer.control_ids[-1]
    assert tokenizer.source_pieces([tag_id]) == ["<back-translated>"]
    for place in range(len(found.train)):
        ids = found.train.pair(place)[0]
        is_tagged = int(found.train.corpora[place]) == 1
        assert (ids[1] == tag_id) == is_tagged and tag_id not in ids[2:]
    assert tag_id not in tokenizer.encode_source("<back-translated> red", "zh")  # no text is encoded as this token
    assert tag_id in special_tokens(tokenizer).forbidden
    assert Tokenizer.load(tmp_path).source_tags == tokenizer.source_tags
    given = TokenizerConfig(path=str(tmp_path))
    data = DataConfig(train=(CorpusConfig(*corpora["de"], source_tag="other"),), num_valid_pairs=5, target_tags=False)
    with pytest.raises(ConfigError, match="no source tag other"):
        prepare(data, given, tmp_path / "new", seed=1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"source_tag": "Big"}, "small letters"),
        ({"source_tag": "pad"}, "is taken"),
        ({"source_tag": "old", "both_directions": True}, "name the corpus twice"),
    ],
)
def test_invalid_source_tags_are_refused(settings: dict[str, Any], words: str) -> None:
    plain = {"data": {"train": [{"source": "a", "target": "b", **settings}]}}
    with pytest.raises(ConfigError, match=words):
        from_mapping(Config, plain)
