"""Training text from teachers and corpora: punctuation, filters, closest translations, other forms."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.recipes.recipe_scripts import compress, error_message, made, run, save, script

text = script("training_text")

# ---- punctuation and filters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "typed"),
    [
        ("He message ‘no’.", 'He message "no".'),
        ("He message “no”.", 'He message "no".'),
        ("It’s Parliament’s ‘last’ word – or isn’t it?", "It's Parliament's \"last\" word - or isn't it?"),
        ("the Members’ rights", "the Members' rights"),
        ("the ‘rights’ of the Members’ families", 'the "rights" of the Members\' families'),
        ("‘It’s ours’, we message", '"It\'s ours", we message'),
        ("“We call it ‘soft’ law”", '"We call it "soft" law"'),
        ("‘We call it “soft” law’", '"We call it "soft" law"'),
        ("yes — no", "yes - no"),
        ("never closed: ‘so it is", "never closed: 'so it is"),
        ('plain "as it is", isn\'t it - yes', 'plain "as it is", isn\'t it - yes'),
    ],
)
def test_punctuation_is_normalized(printed: str, typed: str) -> None:
    assert text.plain(printed) == typed
    assert text.plain(typed) == typed


@pytest.mark.parametrize(
    ("english", "chinese", "sound"),
    [
        ("I like Berlin very much.", "我非常喜欢柏林。", True),
        ("I have used Linux since 1999.", "我从1999年开始使用linux。", True),
        ("I have used Linux since 1999.", "我从1998年开始使用Linux。", False),  # another number
        ("I have used Linux for a long time.", "我从1999年开始使用Linux。", False),  # a number not in the source
        ("I like it very much, and so does she.", "我sehr喜欢它，她也是。", False),  # an untranslated word
        ("I like Berlin very much.", "我非常喜欢柏\ufffd。", False),
        ("I like that very, very, very much.", "我喜欢喜欢喜欢这个东西。", False),  # a word three times
        ("We talked about it again and again, all day long.", "我们谈了又谈，我们谈了又谈，我们谈了又谈。", False),
        ("Two million people live there.", "有两百万人住在那里。", False),  # large numbers, even if correct
        ("Go.", "走", True),  # short, like the English
        ("I like Berlin very much, and so do all of my friends.", "我喜欢。", False),
        ("Yes.", "是的，我也完全同意你刚才所说的话，没有问题。", False),
    ],
)
def test_unsound_chinese_is_dropped(english: str, chinese: str, *, sound: bool) -> None:
    assert text.is_sound_chinese(english, chinese) is sound


@pytest.mark.parametrize(
    ("source", "target", "sound"),
    [
        ("The house is old.", "Das Haus ist alt.", True),
        ("The house is old.", "Das Haus ist a\ufffd.", False),
        ("The house is old and it is large.", "Das Haus ist alt. Das Haus ist alt. Das Haus ist alt.", False),
        ("ha ha ha ha ha ha ha ha ha ha ha", "ha ha ha ha ha ha ha ha ha ha ha", True),  # repeated in the source too
        ("The house is old, and nobody has lived there for years.", "Alt.", False),
        ("Old.", "Das Haus ist alt, und es wohnt seit Jahren niemand dort.", False),
        ("No.", "Nein, nein.", True),
    ],
)
def test_unsound_translations_are_dropped(source: str, target: str, *, sound: bool) -> None:
    assert text.is_sound(source, target) is sound


# ---- the translation closest to the reference ------------------------------------------------------------------------


def several(source: str, *translations: str) -> str:
    """One line of `heedful translate --json`, best translation first."""
    record = {"source": source, "text": translations[0], "n_best": [{"text": one} for one in translations]}
    return json.dumps(record, ensure_ascii=False)


def words_or_marks(line: str) -> list[str]:
    """The characters of a line's words and punctuation."""
    found, in_word = list[str](), False
    for character in line:
        is_part = character.isalnum() or character == "_"
        if is_part and in_word:
            found[-1] += character
        elif not character.isspace():
            found.append(character)
        in_word = is_part
    return found


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Yes.",
        "yes yes yes yes yes, yes",
        "It isn't 3.5 %, is it?",
        "Über 1.000 Größen – »ja«!",
        "  two  spaces\tand a tab ",
        "这是山上的房子。",
    ],
)
def test_word_ngrams(line: str) -> None:
    words = words_or_marks(line)
    pieces = Counter(
        tuple(words[start:end])
        for start in range(len(words))
        for end in range(start + 1, len(words) + 1)
        if end - start <= 4
    )
    assert text.runs_of_words(line) == pieces


@pytest.mark.parametrize(
    ("translations", "reference", "chosen"),
    [
        (("The house is old.", "The building is ancient."), "The building is ancient.", 1),
        (("The old house.", "The house is old.", "A house, old."), "This house is old.", 1),  # longer runs count more
        (("old is house the", "the house is old"), "the house is old", 1),  # the same words in their order
        (("THE HOUSE", "the house"), "the house", 1),
        (("yes yes yes yes", "yes indeed"), "yes", 1),  # a repetition is not closer
        (("the house and the garden", "the house"), "the house", 1),  # nor is a longer text
        (("an old house", "an ancient house"), "a house", 0),  # of two equally close ones, the first
        (("no", "nothing", "never"), "yes", 0),
        (("", "no"), "yes", 0),
        (("no", ""), "", 0),
        (("only one",), "yes", 0),
    ],
)
def test_closest_translation_shares_most_ngrams(translations: tuple[str, ...], reference: str, chosen: int) -> None:
    assert text.nearest(several("Quelle", *translations), reference) == ("Quelle", translations[chosen])


# ---- other forms of sentences ----------------------------------------------------------------------------------------


def test_capitals_and_missing_punctuation(tmp_path: Path) -> None:
    english, german = ([f"{word} {number}." for number in range(20)] for word in ("hello", "größe"))
    english[2], german[2] = "Go !", "Geh!"
    english[10], german[10] = "No mark", "Kein Punkt."  # on one side only: kept, and the pair is left out
    english[18], german[18] = "Is it?", "Ja, und es ist so."
    speeches, reden = ([f"{word} {number}" for number in range(64)] for word in ("speech", "rede"))
    speeches[3], reden[3] = "It’s ‘law’ – now", "Das heißt „Gesetz“"
    speeches[23], reden[43] = "s" * 141, "r" * 141  # too long on one side
    speeches[63] = "s" * 140
    sayings, chinese = ([f"tea {number}{end}" for number in range(10)] for end in (".", "。"))
    sayings[5], chinese[5] = "Is it?", "没有"
    sayings[9], chinese[9] = "Run!", "跑！"
    save(
        tmp_path / "data",
        {
            "europarl-en-de/train.en": speeches,
            "europarl-en-de/train.de": reden,
            "tatoeba-en-de/train.en": english,
            "tatoeba-en-de/train.de": german,
            "tatoeba-en-zh/train.en": sayings,
            "tatoeba-en-zh/train.zh": chinese,
            "3am-en-zh/train.en": [f"a boat {number}" for number in range(6)],
            "3am-en-zh/train.zh": [f"船{number}" for number in range(6)],
        },
    )
    assert run("training_text", "forms", tmp_path / "data", tmp_path / "text").returncode == 0
    everyday = (1, 9, 17, 3, 11, 19, 5, 13)
    assert made(tmp_path / "text") == {
        "shouted.en": [*(f"HELLO {number}." for number in everyday), 'IT\'S "LAW" - NOW', "S" * 140],
        "shouted.de": [*(f"GRÖSSE {number}." for number in everyday), "DAS HEISST „GESETZ“", "REDE 63"],
        "bare.en": ["Go", "Is it"],
        "bare.de": ["Geh", "Ja, und es ist so"],
        "shouted-chinese.en": [*(f"TEA {number}." for number in (0, 2, 4, 6, 8)), "A BOAT 0", "A BOAT 4"],
        "shouted-chinese.zh": [*(f"tea {number}。" for number in (0, 2, 4, 6, 8)), "船0", "船4"],
        "bare-chinese.en": ["tea 1", "Run"],
        "bare-chinese.zh": ["tea 1", "跑"],
    }
    first = {path.name: path.read_bytes() for path in (tmp_path / "text").iterdir()}
    compress(tmp_path / "data")
    assert run("training_text", "forms", tmp_path / "data", tmp_path / "again", hash_seed=1).returncode == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == first


# ---- text of the third model and the last teacher --------------------------------------------------------------------


# The parts that stage 3 translates: German, the reference, and the translations of the model.
OWN = {
    1: [
        ("Das Haus ist alt.", "The house is ancient.", ["The house is old.", "The house is ancient."]),
        ("Es ist kaputt.", "It is broken.", ["It is kaput.", "It is broken\ufffd"]),  # the closest one is filtered out
    ],
    2: [
        ("Der Hund bellt.", "The dog barks.", ["The dog barks.", "The dog is barking."]),
        ("Und noch eine Rede, die lang ist.", "And one more speech, a long one.", ["No."]),
    ],
    3: [
        ("Hallo.", "Hi.", ["Hello.", "Hi.", "Hi there."]),
        ("Danke.", "Thanks.", ["I should like to thank you for all that you have done for us in these years."]),
        ("Tom schläft.", "Tom is asleep.", ["Tom's sleeping.", "Tom sleeps."]),
    ],
}
OWN_CHINESE = {
    "own-4.en": ["I like Berlin very much.", "I like it very much, and so does she."],
    "own-4.zh": ["我非常喜欢柏林。", "我sehr喜欢它，她也是。"],
    "own-5.en": ["I have used Linux since 1998.", "Go."],
    "own-5.zh": ["我从1999年开始使用Linux。", "走"],
}


def save_own(folder: Path) -> None:
    """Write the input of the command `own`: its parts start after 300,000 and 450,000 lines of Europarl."""
    for name, side in (("data/europarl-en-de/train.de", 0), ("text/parliament.en", 1)):
        first, second = ([pair[side] for pair in OWN[part]] for part in (1, 2))
        save(folder, {name: ["x"] * 300_000 + first + ["x"] * (150_000 - len(first)) + second})
    for language, side in (("de", 0), ("en", 1)):
        save(folder, {f"data/tatoeba-en-de/train.{language}": [pair[side] for pair in OWN[3]]})
    for part, lines in OWN.items():
        save(folder, {f"distilled/own-{part}.de": [german for german, _, _ in lines]})
        save(folder, {f"distilled/own-{part}.json": [several(german, *found) for german, _, found in lines]})
    save(folder / "distilled", OWN_CHINESE)


def make(folder: Path, command: str, *, hash_seed: int = 0) -> dict[str, bytes]:
    """The output of a command on synthetic corpora."""
    done = run(
        "training_text", command, *(folder / part for part in ("data", "distilled", "text")), hash_seed=hash_seed
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return {path.name: path.read_bytes() for path in (folder / "text").iterdir() if path.name != "parliament.en"}


def test_selection_of_stage3_translations(tmp_path: Path) -> None:
    save_own(tmp_path)
    first = make(tmp_path, "own")
    assert {name: content.decode().splitlines() for name, content in first.items()} == {
        "own.de": ["Das Haus ist alt.", "Der Hund bellt.", "Hallo.", "Tom schläft."],
        "own.en": ["The house is ancient.", "The dog barks.", "Hi.", "Tom sleeps."],
        "home.en": ["I like Berlin very much."],
        "home.zh": ["我非常喜欢柏林。"],
        "halls.en": ["Go."],
        "halls.zh": ["走"],
    }
    compress(tmp_path / "data")
    assert make(tmp_path, "own", hash_seed=1) == first


@pytest.mark.parametrize("part", [1, 2, 3])
def test_line_missing_from_corpus_is_named(tmp_path: Path, part: int) -> None:
    save_own(tmp_path)
    path = tmp_path / "distilled" / f"own-{part}.de"
    path.write_text(path.read_text("utf-8").replace("a", "o"), encoding="utf-8")
    message = error_message(run("training_text", "own", *(tmp_path / name for name in ("data", "distilled", "text"))))
    assert re.search(rf"{re.escape(str(path))}, line [12]: the corpus has another there", message)
    assert "distill.sh" in message
    assert not (tmp_path / "text" / "own.de").exists()


def test_short_corpus_is_refused(tmp_path: Path) -> None:
    save_late(tmp_path, lines=9)
    for side in ("en", "de"):
        path = tmp_path / "data" / "tatoeba-en-de" / f"train.{side}"
        path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:8]), encoding="utf-8")
    message = error_message(run("training_text", "late", *(tmp_path / name for name in ("data", "distilled", "text"))))
    assert f"{tmp_path / 'distilled' / 'late-4.en'}, line 9: the corpus has another there" in message


def test_truncated_json_line_is_named(tmp_path: Path) -> None:
    save_own(tmp_path)
    path = tmp_path / "distilled" / "own-2.json"
    path.write_text(path.read_text("utf-8")[:-5] + "\n", encoding="utf-8")
    message = error_message(run("training_text", "own", *(tmp_path / name for name in ("data", "distilled", "text"))))
    assert f"{path}, line " in message and "cut off or damaged" in message


def save_late(folder: Path, *, lines: int) -> None:
    """Write the input of the command `late`; the first everyday lines are long, so their chunk finishes late."""
    more = " ".join(map(str, range(1000, 1040)))
    english = [f"line {number} {more if number < 500 else ''}" for number in range(lines)]
    answers = [several(line, f"satz {line}", f"zeile {line}", f"vers {line}") for line in english]
    answers[7] = several(english[7], "zu kurz")
    save(
        folder / "data",
        {"tatoeba-en-de/train.en": english, "tatoeba-en-de/train.de": [f"zeile {line}" for line in english]},
    )
    save(folder / "distilled", {"late-4.en": english, "late-4.json": answers})
    for part in (1, 2, 3, 5):
        sides = {"en": [f"good day {part}", "house"], "de": [f"guten Tag {part}", "H\ufffd"]}
        save(folder / "distilled", {f"late-{part}.{language}": side for language, side in sides.items()})


def test_selection_of_teacher3_translations(tmp_path: Path) -> None:
    lines = 2 * text.LINES_AT_ONCE + 100
    save_late(tmp_path, lines=lines)
    first = make(tmp_path, "late")
    found = made(tmp_path / "text")
    order = [int(line.split()[1]) for line in found["late-everyday.en"]]
    assert order == [number for number in range(lines) if number != 7]
    assert found["late-everyday.de"] == [f"zeile {line}" for line in found["late-everyday.en"]]
    assert found["late.en"] == ["good day 1", "good day 2", "good day 3"]
    assert found["late.de"] == ["guten Tag 1", "guten Tag 2", "guten Tag 3"]
    assert (found["fresh.en"], found["fresh.de"]) == (["good day 5"], ["guten Tag 5"])
    assert sorted(found) == sorted(
        f"{name}.{end}" for name in ("fresh", "late", "late-everyday") for end in ("de", "en")
    )
    compress(tmp_path / "data")
    assert make(tmp_path, "late", hash_seed=1) == first
