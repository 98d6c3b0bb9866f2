"""The scripts that make text for the model in the box: plain marks, sound text of the teachers, numbers, figures."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import lzma
import os
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import pytest

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def script(name: str) -> ModuleType:
    """A script as a module; its name is none that could be imported."""
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), CONFIGS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, *arguments: str | Path, hash_seed: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CONFIGS / f"{name}.py"), *map(str, arguments)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)


def save(folder: Path, texts: dict[str, list[str]]) -> None:
    for name, lines in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def compress(folder: Path) -> None:
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes()))
        path.unlink()


def made(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text("utf-8").splitlines() for path in folder.iterdir()}


sys.path.insert(0, str(CONFIGS))  # where scripts find what they share
text, numbers, figures = script("box-text"), script("box-numbers"), script("box-figures")

# ---- marks and sound text --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "typed"),
    [
        ("He said ‘no’.", 'He said "no".'),
        ("He said “no”.", 'He said "no".'),
        ("It’s Parliament’s ‘last’ word – or isn’t it?", "It's Parliament's \"last\" word - or isn't it?"),
        ("the Members’ rights", "the Members' rights"),
        ("the ‘rights’ of the Members’ families", 'the "rights" of the Members\' families'),
        ("‘It’s ours’, we said", '"It\'s ours", we said'),
        ("“We call it ‘soft’ law”", '"We call it "soft" law"'),
        ("‘We call it “soft” law’", '"We call it "soft" law"'),
        ("yes — no", "yes - no"),
        ("never closed: ‘so it is", "never closed: 'so it is"),
        ('plain "as it is", isn\'t it - yes', 'plain "as it is", isn\'t it - yes'),
    ],
)
def test_marks_are_those_of_a_keyboard(printed: str, typed: str) -> None:
    assert text.plain(printed) == typed
    assert text.plain(typed) == typed


@pytest.mark.parametrize(
    ("english", "chinese", "sound"),
    [
        ("I like Berlin very much.", "我非常喜欢柏林。", True),
        ("I have used Linux since 1999.", "我从1999年开始使用linux。", True),
        ("I have used Linux since 1999.", "我从1998年开始使用Linux。", False),  # another number
        ("I have used Linux for a long time.", "我从1999年开始使用Linux。", False),  # a number from nowhere
        ("I like it very much, and so does she.", "我sehr喜欢它，她也是。", False),  # a word from nowhere
        ("I like Berlin very much.", "我非常喜欢柏\ufffd。", False),
        ("I like that very, very, very much.", "我喜欢喜欢喜欢这个东西。", False),  # three times the same
        ("We talked about it again and again, all day long.", "我们谈了又谈，我们谈了又谈，我们谈了又谈。", False),
        ("Two million people live there.", "有两百万人住在那里。", False),  # large numbers, even right ones
        ("Go.", "走", True),  # short, but so is the English
        ("I like Berlin very much, and so do all of my friends.", "我喜欢。", False),
        ("Yes.", "是的，我也完全同意你刚才所说的话，没有问题。", False),
    ],
)
def test_chinese_is_sound(english: str, chinese: str, *, sound: bool) -> None:
    assert text.is_sound_chinese(english, chinese) is sound


@pytest.mark.parametrize(
    ("source", "target", "sound"),
    [
        ("The house is old.", "Das Haus ist alt.", True),
        ("The house is old.", "Das Haus ist a\ufffd.", False),
        ("The house is old and it is large.", "Das Haus ist alt. Das Haus ist alt. Das Haus ist alt.", False),
        ("ha ha ha ha ha ha ha ha ha ha ha", "ha ha ha ha ha ha ha ha ha ha ha", True),  # as it was said
        ("The house is old, and nobody has lived there for years.", "Alt.", False),
        ("Old.", "Das Haus ist alt, und es wohnt seit Jahren niemand dort.", False),
        ("No.", "Nein, nein.", True),
    ],
)
def test_a_translation_is_sound(source: str, target: str, *, sound: bool) -> None:
    assert text.is_sound(source, target) is sound


# ---- the commands ----------------------------------------------------------------------------------------------------

DATA = {
    "europarl-en-de/train.en": ["It’s ‘law’.", "A line\rwith two ends", "No."],
    "tatoeba-en-de/train.en": [f"hello {number}" for number in range(17)],
    "tatoeba-en-de/train.de": [f"größe {number}" for number in range(17)],
}
DISTILLED = {
    "more-zh.en": ["hello 3", "It’s a house on the hill.", "hello 4"],
    "more-zh.zh": ["你好啊3", "这是山上的房子。", "你好啊5"],
    **{f"en-de-{part}.en": [f"good day {part}", "house"] for part in (1, 2, 3)},
    **{f"en-de-{part}.de": [f"guten Tag {part}", "H\ufffd"] for part in (1, 2, 3)},
    **{f"de-en-{part}.de": [f"gute Nacht {part}"] for part in (1, 2, 3)},
    **{f"de-en-{part}.en": [f"good night {part}"] for part in (1, 2, 3)},
}
MADE = {
    "parliament.en": ['It\'s "law".', "A line\rwith two ends", "No."],
    "capitals.en": ["HELLO 0", "HELLO 8", "HELLO 16"],
    "capitals.de": ["GRÖSSE 0", "GRÖSSE 8", "GRÖSSE 16"],
    "everyday.en": ["hello 3"],
    "everyday.zh": ["你好啊3"],
    "speeches.zh": ["这是山上的房子。"],
    "speeches.en": ["It's a house on the hill."],
    "en-de.en": ["good day 1", "good day 2", "good day 3"],
    "en-de.de": ["guten Tag 1", "guten Tag 2", "guten Tag 3"],
    "de-en.de": ["gute Nacht 1", "gute Nacht 2", "gute Nacht 3"],
    "de-en.en": ["good night 1", "good night 2", "good night 3"],
}


def make_all(folder: Path, out: str, *, hash_seed: int) -> dict[str, bytes]:
    data, distilled = folder / "data", folder / "distilled"
    for command in (["corpora", data], ["chinese", data, distilled], ["german", distilled]):
        done = run("box-text", *command, folder / out, hash_seed=hash_seed)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return {path.name: path.read_bytes() for path in (folder / out).iterdir()}


def test_the_three_commands_write_the_same_bytes_every_time_from_plain_and_compressed_text(tmp_path: Path) -> None:
    save(tmp_path / "data", DATA)
    save(tmp_path / "distilled", DISTILLED)
    first = make_all(tmp_path, "text", hash_seed=0)
    assert first == {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in MADE.items()}
    assert make_all(tmp_path, "text", hash_seed=1) == first
    compress(tmp_path / "data")
    compress(tmp_path / "distilled")
    assert make_all(tmp_path, "again", hash_seed=2) == first


def told(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a refusal."""
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n")
    return done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("latin", "data", "text"),
        ("corpora", "data"),
        ("german", "a", "b", "c"),
        ("forms", "data", "distilled", "text"),
        ("own", "data", "text"),
        ("late", "data"),
    ],
)
def test_a_wrong_command_line_is_told_the_right_ones(arguments: tuple[str, ...]) -> None:
    ways = (
        "say corpora DATA OUT or chinese DATA DISTILLED OUT or german DISTILLED OUT or forms DATA OUT"
        " or own DATA DISTILLED OUT or late DATA DISTILLED OUT, not "
    )
    assert f"{ways}{' '.join(arguments)!r}." in told(run("box-text", *arguments))


@pytest.mark.parametrize("name", ["box-numbers", "box-figures"])
@pytest.mark.parametrize("arguments", [(), ("a", "b"), ("--write",)])
def test_numbers_and_figures_want_one_folder(name: str, arguments: tuple[str, ...]) -> None:
    assert f"{name}.py: say one folder" in told(run(name, *arguments))


@pytest.mark.parametrize("name", ["box-text", "box-numbers", "box-figures"])
def test_help_is_given(name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0 and f"{name}.py" in done.stdout


@pytest.mark.parametrize("missing", ["europarl-en-de/train.en", "tatoeba-en-de/train.de", "all"])
def test_a_missing_corpus_is_named(tmp_path: Path, missing: str) -> None:
    save(tmp_path / "data", {name: lines for name, lines in DATA.items() if missing not in (name, "all")})
    named = next(iter(DATA)) if missing == "all" else missing
    said = told(run("box-text", "corpora", tmp_path / "data", tmp_path / "text"))
    assert f"{tmp_path / 'data' / named}: there is no such file" in said and "configs/box.yaml" in said
    assert not (tmp_path / "text" / "capitals.en").exists()


def test_what_no_teacher_wrote_yet_is_named(tmp_path: Path) -> None:
    save(tmp_path / "data", DATA)
    nowhere, out = tmp_path / "distilled", tmp_path / "text"
    assert str(nowhere / "more-zh.en") in told(run("box-text", "chinese", tmp_path / "data", nowhere, out))
    assert str(nowhere / "en-de-1.en") in told(run("box-text", "german", nowhere, out))
    assert str(nowhere / "own-1.de") in told(run("box-text", "own", tmp_path / "data", nowhere, out))
    assert str(nowhere / "late-1.en") in told(run("box-text", "late", tmp_path / "data", nowhere, out))
    assert not out.exists()


def test_text_that_broke_off_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "data", {**DATA, "tatoeba-en-de/train.de": ["größe"]})
    said = told(run("box-text", "corpora", tmp_path / "data", tmp_path / "text"))
    assert "not the same number of lines" in said and "train.de" in said
    path = tmp_path / "data" / "europarl-en-de" / "train.en"
    path.with_name("train.en.xz").write_bytes(lzma.compress(path.read_bytes())[:-9])
    path.unlink()
    said = told(run("box-text", "corpora", tmp_path / "data", tmp_path / "other"))
    assert f"{path}.xz: damaged" in said
    assert not (tmp_path / "other" / "parliament.en").exists()


@pytest.mark.parametrize("command", [["box-text", "corpora", "data"], ["box-numbers"], ["box-figures"]])
def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path, command: list[str]) -> None:
    save(tmp_path / "data", DATA)
    (tmp_path / "text").write_text("mine", encoding="utf-8")
    name, *arguments = [part.replace("data", str(tmp_path / "data")) for part in command]
    assert str(tmp_path / "text") in told(run(name, *arguments, tmp_path / "text"))
    assert (tmp_path / "text").read_text("utf-8") == "mine"


# ---- the translation nearest to a person's ---------------------------------------------------------------------------


def several(source: str, *translations: str) -> str:
    """A line of JSON as the program writes it, the best translation first."""
    told = {"source": source, "text": translations[0], "n_best": [{"text": one} for one in translations]}
    return json.dumps(told, ensure_ascii=False)


def words_or_marks(line: str) -> list[str]:
    """The words and marks of a line, one character after the other."""
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
def test_runs_of_words_are_all_pieces_of_one_to_four(line: str) -> None:
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
        (("yes yes yes yes", "yes indeed"), "yes", 1),  # said again it is not nearer
        (("the house and the garden", "the house"), "the house", 1),  # nor is it with more around it
        (("an old house", "an ancient house"), "a house", 0),  # of two alike the first
        (("no", "nothing", "never"), "yes", 0),
        (("", "no"), "yes", 0),
        (("no", ""), "", 0),
        (("only one",), "yes", 0),
    ],
)
def test_the_nearest_shares_most_runs_of_words(translations: tuple[str, ...], reference: str, chosen: int) -> None:
    assert text.nearest(several("Quelle", *translations), reference) == ("Quelle", translations[chosen])


# ---- other forms of sentences ----------------------------------------------------------------------------------------


def test_forms_are_in_capitals_and_bare(tmp_path: Path) -> None:
    english, german = ([f"{word} {number}." for number in range(20)] for word in ("hello", "größe"))
    english[2], german[2] = "Go !", "Geh!"
    english[10], german[10] = "No mark", "Kein Punkt."  # on one side alone it stays, and the pair is left out
    english[18], german[18] = "Is it?", "Ja, und es ist so."
    speeches, reden = ([f"{word} {number}" for number in range(64)] for word in ("speech", "rede"))
    speeches[3], reden[3] = "It’s ‘law’ – now", "Das heißt „Gesetz“"
    speeches[23], reden[43] = "s" * 141, "r" * 141  # too long, be it on one side
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
    assert run("box-text", "forms", tmp_path / "data", tmp_path / "text").returncode == 0
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
    assert run("box-text", "forms", tmp_path / "data", tmp_path / "again", hash_seed=1).returncode == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == first


# ---- what the third model and the last teacher wrote -----------------------------------------------------------------


# Of each part that the third model translates: German, what a person made of it, and what the model did.
OWN = {
    1: [
        ("Das Haus ist alt.", "The house is ancient.", ["The house is old.", "The house is ancient."]),
        ("Es ist kaputt.", "It is broken.", ["It is kaput.", "It is broken\ufffd"]),  # the nearest is not sound
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
    """What the command own needs: the first part stands behind 300,000 lines of parliament, the second behind more."""
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
    """What a command writes of the made-up corpora."""
    done = run("box-text", command, *(folder / part for part in ("data", "distilled", "text")), hash_seed=hash_seed)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return {path.name: path.read_bytes() for path in (folder / "text").iterdir() if path.name != "parliament.en"}


def test_of_what_the_third_model_wrote_the_sound_and_nearest_is_taken(tmp_path: Path) -> None:
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
def test_a_line_that_the_corpus_does_not_have_there_is_named(tmp_path: Path, part: int) -> None:
    save_own(tmp_path)
    path = tmp_path / "distilled" / f"own-{part}.de"
    path.write_text(path.read_text("utf-8").replace("a", "o"), encoding="utf-8")
    said = told(run("box-text", "own", *(tmp_path / name for name in ("data", "distilled", "text"))))
    assert re.search(rf"{re.escape(str(path))}, line [12]: the corpus has another there", said)
    assert "box-distil.sh" in said
    assert not (tmp_path / "text" / "own.de").exists()


def test_a_corpus_that_ends_too_soon_is_another_corpus(tmp_path: Path) -> None:
    save_late(tmp_path, lines=9)
    for side in ("en", "de"):
        path = tmp_path / "data" / "tatoeba-en-de" / f"train.{side}"
        path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:8]), encoding="utf-8")
    said = told(run("box-text", "late", *(tmp_path / name for name in ("data", "distilled", "text"))))
    assert f"{tmp_path / 'distilled' / 'late-4.en'}, line 9: the corpus has another there" in said


def test_a_line_of_json_that_was_cut_off_is_named(tmp_path: Path) -> None:
    save_own(tmp_path)
    path = tmp_path / "distilled" / "own-2.json"
    path.write_text(path.read_text("utf-8")[:-5] + "\n", encoding="utf-8")
    said = told(run("box-text", "own", *(tmp_path / name for name in ("data", "distilled", "text"))))
    assert f"{path}, line " in said and "cut off or damaged" in said


def save_late(folder: Path, *, lines: int) -> None:
    """What the command late needs; the first everyday lines are long, so that their portion is not done first."""
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


def test_of_what_the_last_teacher_wrote_the_sound_and_nearest_is_taken_in_order(tmp_path: Path) -> None:
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


# ---- numbers ---------------------------------------------------------------------------------------------------------

CHINESE_DIGITS = {**{digit: value for value, digit in enumerate("零一二三四五六七八九")}, "两": 2}
UNITS = {"million": 6, "billion": 9, "trillion": 12, "万": 4, "亿": 8, "万亿": 12, "": 0}


def value_of(numeral: str) -> int:
    """The value of a number in Chinese characters."""
    hundred_millions = ten_thousands = section = digit = 0
    for character in numeral:
        if character in "十百千":
            section, digit = section + (digit or 1) * 10 ** ("十百千".index(character) + 1), 0
        elif character == "万":
            ten_thousands, section, digit = (section + digit) * 10**4, 0, 0
        elif character == "亿":
            hundred_millions, ten_thousands = (ten_thousands + section + digit) * 10**8, 0
            section = digit = 0
        else:
            digit = CHINESE_DIGITS[character]
    return hundred_millions + ten_thousands + section + digit


def english_values(english: str) -> list[Decimal]:
    """All numbers of an English text."""
    found = re.findall(r"(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)(?: ([mb]illion|trillion))?", english)
    return sorted(Decimal(digits.replace(",", "")).scaleb(UNITS[unit]) for digits, unit in found)


def chinese_values(chinese: str) -> list[Decimal]:
    """All numbers of a Chinese text but months, which English has words for."""
    rest = re.sub(r"\d+月|红十字|(?<=[\d十百千])多(?=[万亿])", "", chinese)
    digits = r"(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)(万亿|亿|万)?"
    values = [Decimal(number.replace(",", "")).scaleb(UNITS[unit]) for number, unit in re.findall(digits, rest)]
    numerals = re.findall(
        "[一二两三四五六七八九十][一二三四五六七八九十百千万亿零]*[十百千万亿]", re.sub(digits, "", rest)
    )
    return sorted(values + [Decimal(value_of(numeral)) for numeral in numerals])


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """What the script writes, and the same from another process."""
    folders = [tmp_path_factory.mktemp("numbers") / "text" for _ in range(2)]
    for seed, folder in enumerate(folders):
        assert run("box-numbers", folder, hash_seed=seed).returncode == 0
    for name in ("numbers.en", "numbers.zh"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    sides = made(folders[0])
    return list(zip(sides["numbers.en"], sides["numbers.zh"], strict=True))


def test_there_are_as_many_different_pairs_as_the_script_says(pairs: list[tuple[str, str]]) -> None:
    assert len(pairs) == len(set(pairs)) == numbers.PAIRS == 40_000
    assert not [pair for pair in pairs if re.search("[{}]", "".join(pair)) or " " in pair[1]]


@pytest.mark.usefixtures("benchmarks")
def test_they_are_those_that_the_model_learned_from(pairs: list[tuple[str, str]]) -> None:
    listed = {name: checksum for checksum, name in importlib.import_module("box_sets").stated()}
    for side, name in enumerate(("text/numbers.en", "text/numbers.zh")):
        written = "".join(f"{pair[side]}\n" for pair in pairs)
        assert hashlib.sha256(written.encode()).hexdigest() == listed[name]


def test_both_sides_of_every_pair_have_the_same_numbers(pairs: list[tuple[str, str]]) -> None:
    wrong = [pair for pair in pairs if english_values(pair[0]) != chinese_values(pair[1])]
    assert not wrong, wrong[:10]
    powers = {value.adjusted() for english, _ in pairs for value in english_values(english)}
    assert powers >= set(range(3, 13))


@pytest.mark.parametrize(
    ("english", "chinese", "same"),
    [
        ("3.5 million", "350万", True),
        ("3.5 million", "35万", False),
        ("35,000 on June 3", "三万五千，6月3日", True),
        ("35,000", "三万五百", False),
        ("more than 300,000", "30多万", True),
        ("1.23 billion", "十二亿三千万", True),
        ("2 trillion", "两万亿", True),
        ("2 trillion", "两亿", False),
    ],
)
def test_the_comparison_finds_what_is_wrong(english: str, chinese: str, *, same: bool) -> None:
    assert (english_values(english) == chinese_values(chinese)) is same


@pytest.mark.parametrize(
    ("value", "english", "chinese"),
    [
        (3000, "3,000", "三千"),
        (20_000, "20,000", "两万"),
        (35_000, "35,000", "三万五千"),
        (120_000, "120,000", "十二万"),
        (1_050_000, "1.05 million", "一百零五万"),
        (2_200_000, "2.2 million", "两百二十万"),
        (12_000_000, "12 million", "一千二百万"),
        (1_030_000_000, "1.03 billion", "十亿三千万"),
        (3_500_000_000_000, "3.5 trillion", "三万五千亿"),
    ],
)
def test_numbers_are_written_the_way_of_each_language(value: int, english: str, chinese: str) -> None:
    assert (numbers.in_english(value), numbers.in_numerals(value)) == (english, chinese)
    assert [value] == english_values(english) == chinese_values(chinese)


@pytest.mark.parametrize(
    ("number", "hedged"), [("3万", "3万多"), ("30万", "30多万"), ("三百万", "三百多万"), ("35000", "35000多")]
)
def test_more_than_stands_at_its_place(number: str, hedged: str) -> None:
    assert numbers.hedged_chinese(numbers.LARGER, number) == hedged


# ---- figures ---------------------------------------------------------------------------------------------------------

FIGURE_UNITS = {
    **dict.fromkeys(("k",), 3),
    **dict.fromkeys(("million", "m", "Million", "Millionen", "Mio."), 6),
    **dict.fromkeys(("billion", "bn", "Milliarde", "Milliarden", "Mrd."), 9),
    **dict.fromkeys(("trillion", "tn", "Billion", "Billionen", "Bio."), 12),
    **dict.fromkeys(("quadrillion", "Billiarden"), 15),
    **dict(zip(("", "万", "亿", "万亿"), (0, 4, 8, 12), strict=True)),
}
ENGLISH_SMALL = "two three four five six seven eight nine ten eleven twelve".split()
GERMAN_SMALL = "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf".split()


def in_digits(written: str, words: list[str], units: str) -> str:
    """A text with the small numbers before its units in digits."""
    pattern = rf"\b({'|'.join(words)})(?= (?:{units})\b)"
    return re.sub(pattern, lambda found: str(words.index(found[1].lower()) + 2), written, flags=re.IGNORECASE)


def values(found: list[tuple[str, str]]) -> list[Decimal]:
    return sorted(Decimal(digits.replace(",", "")).scaleb(FIGURE_UNITS[unit]) for digits, unit in found)


def english_figures(english: str, *, whole_day: bool) -> list[Decimal]:
    """All figures of an English text; those of a whole day count its hours to 24."""
    rest = in_digits(english, ENGLISH_SMALL, "[mb]illion|trillion|quadrillion")
    if whole_day:
        hour = re.compile(r"\b(\d+)((?::\d\d)?) ?([ap])\.?m\b")
        rest = hour.sub(lambda found: f"{int(found[1]) % 12 + 12 * (found[3] == 'p')}{found[2]}", rest)
    unit = r"(?: (?=[a-z])|(?=[a-z]))(million|billion|trillion|quadrillion|tn|bn|m|k)\b"
    return values(re.findall(rf"(\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?)(?:{unit})?", rest))


def german_figures(german: str) -> list[Decimal]:
    """All figures of a German text."""
    rest = in_digits(german, GERMAN_SMALL, "Millionen|Milliarden|Billionen|Billiarden")
    number = r"(\d{1,3}(?:\.\d{3})+(?:,\d+)?|\d+(?:,\d+)?)"
    found = re.findall(rf"{number}(?: (Mill?i\w+|Bill?i\w+|Mio\.|Mrd\.|Bio\.))?", rest)
    return values([(digits.translate(str.maketrans(",.", ".,")), unit) for digits, unit in found])


def chinese_figures(chinese: str) -> list[Decimal]:
    """All figures in digits of a Chinese text but months, and decades without their century."""
    rest = re.sub(r"\d+月|20世纪\d0年代", "", unicodedata.normalize("NFKC", chinese))
    return values(re.findall(r"(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(万亿|亿|万)?", rest))


@pytest.fixture(scope="module")
def figure_pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    """What the script writes, and the same from another process."""
    folders = [tmp_path_factory.mktemp("figures") / "text" for _ in range(2)]
    for seed, folder in enumerate(folders):
        assert run("box-figures", folder, hash_seed=seed).returncode == 0
    names = {"de": "german-figures", "zh": "chinese-figures"}
    assert sorted(made(folders[0])) == sorted(f"{names[side]}.{end}" for side in names for end in ("en", side))
    for path in folders[0].iterdir():
        assert path.read_bytes() == (folders[1] / path.name).read_bytes()
    sides = made(folders[0])
    return {
        language: list(zip(sides[f"{name}.en"], sides[f"{name}.{language}"], strict=True))
        for language, name in names.items()
    }


@pytest.mark.parametrize(("language", "count"), [("de", 40_000), ("zh", 25_000)])
def test_there_are_as_many_figures_as_asked(
    figure_pairs: dict[str, list[tuple[str, str]]], language: str, count: int
) -> None:
    pairs = figure_pairs[language]
    assert len(pairs) == len(set(pairs)) == figures.PAIRS[language] == count
    assert sum(map(len, figures.TEMPLATES[language])) >= 120
    odd = r"[{}|]|  |\.\.|[$€£¥][a-z]|^\s|\s$|(?<![,\d])1 (Million|Milliard|Billion|Billiard)en\b"
    assert not [pair for pair in pairs if re.search(odd, pair[0]) or re.search(odd, pair[1])]
    phrases = sum(not english.endswith((".", "?")) for english, _ in pairs)
    assert 0.10 < phrases / count < 0.15


def test_german_figures_are_worth_what_the_english_are(figure_pairs: dict[str, list[tuple[str, str]]]) -> None:
    pairs = figure_pairs["de"]
    wrong = [pair for pair in pairs if english_figures(pair[0], whole_day=True) != german_figures(pair[1])]
    assert not wrong, wrong[:10]
    assert sum("Billion" in german for _, german in pairs) > 3000
    assert all(" %" in german for _, german in pairs if "%" in german)


def test_chinese_figures_are_worth_what_the_english_are(figure_pairs: dict[str, list[tuple[str, str]]]) -> None:
    numerals, words = "[一二两三四五六七八九十百千半刻零]", "(hundred|thousand|half [mb]illion|(?<=[a-z]) [mb]illion)"
    plain = [pair for pair in figure_pairs["zh"] if not re.search(numerals, pair[1].replace("零下", ""))]
    plain = [pair for pair in plain if not re.search(words, pair[0])]
    plain = [(re.sub(r"19\d0s", "", english), chinese) for english, chinese in plain]
    wrong = [pair for pair in plain if english_figures(pair[0], whole_day=False) != chinese_figures(pair[1])]
    assert not wrong, wrong[:10]
    assert len(plain) > 10_000
    wide = sum(bool(re.search("[０-９]", chinese)) for _, chinese in figure_pairs["zh"])
    assert 0.09 < wide / figures.PAIRS["zh"] < 0.12


def words_value(english: str) -> Decimal:
    """The value of an English number in words."""
    total, section = Decimal(0), Decimal(0)
    powers = {"thousand": 3, "million": 6, "billion": 9}
    for word in english.replace(" and a half", " half").replace(" and ", " ").replace("-", " ").split():
        if word in powers:
            total, section = total + section.scaleb(powers[word]), Decimal(0)
        elif word == "hundred":
            section *= 100
        elif word == "half":
            section += Decimal("0.5")
        else:
            section += figures.ONES.index(word) if word in figures.ONES else 10 * figures.TENS.index(word)
    return total + section


def test_chinese_figures_are_worth_what_the_english_words_are(figure_pairs: dict[str, list[tuple[str, str]]]) -> None:
    found = [pair for pair in figure_pairs["zh"] if re.fullmatch("[a-z -]+ people", pair[0])]
    assert len(found) > 50
    for english, chinese in found:
        value = [Decimal(value_of(chinese[:-1]))] if not re.search(r"\d", chinese) else chinese_figures(chinese)
        assert [words_value(english.removesuffix(" people"))] == value, (english, chinese)


@pytest.mark.parametrize(
    ("english", "german", "same"),
    [
        ("€1,849.00 at 10:45 p.m.", "1.849,00 € um 22.45 Uhr", True),
        ("€1,849.00", "1,849.00 €", False),
        ("$3.5 trillion", "3,5 Billionen Dollar", True),
        ("$3.5 billion", "3,5 Billionen Dollar", False),
        ("$5m", "fünf Millionen Dollar", True),
        ("March 5, 2019", "5. März 2019", True),
    ],
)
def test_the_comparison_of_german_figures_finds_what_is_wrong(english: str, german: str, *, same: bool) -> None:
    assert (english_figures(english, whole_day=True) == german_figures(german)) is same


@pytest.mark.parametrize(
    ("value", "english", "german", "chinese"),
    [
        (12, "twelve", "zwölf", "十二"),
        (21, "twenty-one", "einundzwanzig", "二十一"),
        (250, "two hundred and fifty", "zweihundertfünfzig", "两百五十"),
        (1600, "one thousand six hundred", "eintausendsechshundert", "一千六百"),
        (2200, "two thousand two hundred", "zweitausendzweihundert", "两千二百"),
        (12_000, "twelve thousand", "zwölftausend", "一万两千"),
        (17_000, "seventeen thousand", "siebzehntausend", "一万七千"),
        (350_000, "three hundred and fifty thousand", "dreihundertfünfzigtausend", "三十五万"),
    ],
)
def test_figures_in_words(value: int, english: str, german: str, chinese: str) -> None:
    written = figures.english_words(value), figures.german_words(value), figures.chinese_words(value)
    assert written == (english, german, chinese)
    assert value_of(chinese) == value


@pytest.mark.parametrize(
    ("hour", "minute", "style", "english", "german", "chinese"),
    [
        (8, 30, "bare", {"half past eight"}, {"halb neun"}, {"八点半"}),
        (8, 30, "day", {"half past eight in the morning"}, {"halb neun morgens"}, {"上午八点半", "早上八点半"}),
        (12, 30, "bare", {"half past twelve"}, {"halb eins"}, {"十二点半"}),
        (1, 0, "bare", {"one o'clock"}, {"ein Uhr"}, {"一点", "一点钟"}),
        (2, 15, "bare", {"quarter past two", "a quarter past two"}, {"Viertel nach zwei"}, {"两点一刻"}),
        (
            8,
            45,
            "bare",
            {"quarter to nine", "a quarter to nine"},
            {"Viertel vor neun"},
            {"差一刻九点", "八点四十五", "八点四十五分"},
        ),
        (5, 40, "bare", {"twenty to six"}, {"zwanzig vor sechs"}, {"五点四十", "五点四十分"}),
        (8, 25, "bare", {"twenty-five past eight"}, {"fünf vor halb neun"}, {"八点二十五", "八点二十五分"}),
        (15, 0, "short", {"3 p.m.", "3 pm", "3pm"}, {"15 Uhr"}, {"下午3点"}),
        (
            22,
            45,
            "short",
            {"10:45 p.m.", "10:45 pm", "10:45pm"},
            {"22.45 Uhr", "22:45 Uhr"},
            {"晚上10点45分", "晚上10:45"},
        ),
        (15, 40, "long", {"15:40"}, {"15:40 Uhr", "15.40 Uhr"}, {"15:40", "15点40分"}),
        (12, 0, "day", {"noon"}, {"zwölf Uhr mittags"}, {"中午", "中午十二点"}),
        (0, 0, "day", {"midnight"}, {"Mitternacht"}, {"午夜", "半夜十二点"}),
    ],
)
def test_times_of_day(
    hour: int, minute: int, style: str, english: set[str], german: set[str], chinese: set[str]
) -> None:
    clock, rng = figures.Clock(hour, minute, style), figures.Random(1)
    for write, written in zip(
        (figures.clock_english, figures.clock_german, figures.clock_chinese), (english, german, chinese), strict=True
    ):
        assert {write(rng, clock) for _ in range(200)} == written
