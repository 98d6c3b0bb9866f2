"""Commands of the scripts that make the bundled model's text: reproducible output, refused arguments."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from tests.recipes.recipe_scripts import compress, error_message, run, save

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
        done = run("training_text", *command, folder / out, hash_seed=hash_seed)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return {path.name: path.read_bytes() for path in (folder / out).iterdir()}


def test_output_is_reproducible_from_plain_and_compressed_text(tmp_path: Path) -> None:
    save(tmp_path / "data", DATA)
    save(tmp_path / "distilled", DISTILLED)
    first = make_all(tmp_path, "text", hash_seed=0)
    assert first == {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in MADE.items()}
    assert make_all(tmp_path, "text", hash_seed=1) == first
    compress(tmp_path / "data")
    compress(tmp_path / "distilled")
    assert make_all(tmp_path, "again", hash_seed=2) == first


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
def test_invalid_command_lines_show_usage(arguments: tuple[str, ...]) -> None:
    ways = (
        "say corpora DATA OUT or chinese DATA DISTILLED OUT or german DISTILLED OUT or forms DATA OUT"
        " or chinese_forms DATA OUT or own DATA DISTILLED OUT or late DATA DISTILLED OUT, not "
    )
    assert f"{ways}{' '.join(arguments)!r}." in error_message(run("training_text", *arguments))


@pytest.mark.parametrize("name", ["synthetic_numbers", "synthetic_figures"])
@pytest.mark.parametrize("arguments", [(), ("a", "b"), ("--write",)])
def test_synthetic_scripts_take_one_folder(name: str, arguments: tuple[str, ...]) -> None:
    assert f"{name}.py: give one output folder" in error_message(run(name, *arguments))


@pytest.mark.parametrize("name", ["training_text", "synthetic_numbers", "synthetic_figures"])
def test_help_shows_the_usage_of_each_script(name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0 and f"{name}.py" in done.stdout


@pytest.mark.parametrize("missing", ["europarl-en-de/train.en", "tatoeba-en-de/train.de", "all"])
def test_missing_corpus_is_named(tmp_path: Path, missing: str) -> None:
    save(tmp_path / "data", {name: lines for name, lines in DATA.items() if missing not in (name, "all")})
    named = next(iter(DATA)) if missing == "all" else missing
    message = error_message(run("training_text", "corpora", tmp_path / "data", tmp_path / "text"))
    assert f"{tmp_path / 'data' / named}: there is no such file" in message
    assert "recipes/bundled-model/run.sh" in message
    assert not (tmp_path / "text" / "capitals.en").exists()


def test_missing_translations_are_named(tmp_path: Path) -> None:
    save(tmp_path / "data", DATA)
    folder, out = tmp_path / "distilled", tmp_path / "text"
    assert str(folder / "more-zh.en") in error_message(run("training_text", "chinese", tmp_path / "data", folder, out))
    assert str(folder / "en-de-1.en") in error_message(run("training_text", "german", folder, out))
    assert str(folder / "own-1.de") in error_message(run("training_text", "own", tmp_path / "data", folder, out))
    assert str(folder / "late-1.en") in error_message(run("training_text", "late", tmp_path / "data", folder, out))
    assert not out.exists()


def test_truncated_text_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "data", {**DATA, "tatoeba-en-de/train.de": ["größe"]})
    message = error_message(run("training_text", "corpora", tmp_path / "data", tmp_path / "text"))
    assert "not the same number of lines" in message and "train.de" in message
    path = tmp_path / "data" / "europarl-en-de" / "train.en"
    path.with_name("train.en.xz").write_bytes(lzma.compress(path.read_bytes())[:-9])
    path.unlink()
    message = error_message(run("training_text", "corpora", tmp_path / "data", tmp_path / "other"))
    assert f"{path}.xz: damaged" in message
    assert not (tmp_path / "other" / "parliament.en").exists()


@pytest.mark.parametrize(
    "command", [["training_text", "corpora", "data"], ["synthetic_numbers"], ["synthetic_figures"]]
)
def test_file_instead_of_folder_is_named(tmp_path: Path, command: list[str]) -> None:
    save(tmp_path / "data", DATA)
    (tmp_path / "text").write_text("mine", encoding="utf-8")
    name, *arguments = [part.replace("data", str(tmp_path / "data")) for part in command]
    assert str(tmp_path / "text") in error_message(run(name, *arguments, tmp_path / "text"))
    assert (tmp_path / "text").read_text("utf-8") == "mine"
