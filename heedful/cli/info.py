"""`heedful info`: what a model is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.exit_codes import printable
from heedful.cli.overrides import model_directory
from heedful.errors import ConfigError


def info(
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help="Directory or name; without it the bundled model.")
    ] = None,
    check: Annotated[bool, typer.Option("--verify", help="Compare every file with its checksum.")] = False,
    card: Annotated[bool, typer.Option("--card", help="Print the model card.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Say what a model is: direction, size, data, scores.

    \b
    heedful info model
    heedful info model --verify
    heedful info model --card > CARD.md
    """
    from heedful.model_dir import describe, verify
    from heedful.model_dir.registry import RECORD

    directory = model_directory(model)
    if (directory / RECORD).is_file():
        raise ConfigError(
            f"{directory} was exported for CTranslate2: translate takes it; info tells of the model it was made from."
        )
    found = describe(directory)
    checked = verify(directory) if check else []
    if card:
        print(printable((directory / "README.md").read_text(encoding="utf-8", errors="replace")), end="")
    elif as_json:
        print(json.dumps({**found, "verified": checked} if check else found, indent=2, ensure_ascii=False))
    else:
        print_rows(rows_of(found))
        if checked:
            print(f"All {len(checked)} files are as they were saved.")


def rows_of(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What people ask about a model, as rows of name and value."""
    from heedful.model_dir.files import SHORTLIST

    config, details = found["config"], found["details"]
    model, training = config["model"], details.get("training") or {}
    layers = f"{model['num_encoder_layers']} + {model['num_decoder_layers']} layers"
    shape = f"{config['preset']}: {layers}, width {model['d_model']}, {model['num_heads']} heads"
    rows = [
        ("name", config["name"] or "not stated"),
        ("direction", direction_of(found)),
        ("licence", config["licence"] or "not stated"),
        ("parameters", f"{found['num_parameters']:,} ({weights_of(found)})"),
        ("shape", shape),
        ("vocabulary", vocabulary_of(config)),
        ("longest text", f"{model['max_length']:,} subwords"),
        ("search", search_of(config["decoding"])),
        ("shortlist", "yes" if SHORTLIST in found["files"] else "none"),
    ]
    for corpus in (details.get("data") or {}).get("corpora", []):
        rows.append(("data", f"{corpus['role']}: {corpus['name']}, {corpus['num_kept']:,} of {corpus['num_read']:,}"))
    numbers = {
        key: value for key, value in training.items() if value is not None and not isinstance(value, (Mapping, list))
    }
    told = [f"{key.replace('_', ' ')} {plain(value)}" for key, value in numbers.items()]
    rows.append(("training", ", ".join(told) or "not stated"))
    rows += [("score", score_line(one)) for one in details.get("scores") or []] or [("score", "none")]
    rows.append(("made with", f"heedful {found['heedful_version']}, format {found['format_version']}"))
    return rows


def weights_of(found: Mapping[str, Any]) -> str:
    """Size and type of the weights, and in how many files they lie."""
    from heedful.model_dir.files import is_weights

    count = sum(is_weights(name) for name in found["files"])
    kinds = "compact: I8 with scales" if found["compact"] else ", ".join(found["dtypes"])
    return f"{found['weights_size'] / 1e6:,.1f} MB, {kinds}{f', {count} files' if count > 1 else ''}"


def direction_of(found: Mapping[str, Any]) -> str:
    """Such as `en → de`, of all training corpora."""
    from heedful.config import Config
    from heedful.config_loading import from_mapping
    from heedful.text.language_routing import format_initial_directions, trained_directions

    pairs = trained_directions(from_mapping(Config, found["config"]).data, found["details"])
    told = ", ".join(f"{pair.source} → {pair.target}" for pair in pairs if pair.source and pair.target)
    return (told or "not stated") + format_initial_directions(pairs, found["details"])


def vocabulary_of(config: Mapping[str, Any]) -> str:
    """The number of subwords, of both sides if they differ."""
    model = config["model"]
    if config["tokenizer"]["joint"]:
        return f"{model['target_vocab_size']:,} subwords, shared by both sides"
    return f"{model['source_vocab_size']:,} source and {model['target_vocab_size']:,} target subwords"


def search_of(decoding: Mapping[str, Any]) -> str:
    """How the model translates unless told otherwise."""
    if decoding["method"] != "beam":
        return str(decoding["method"])
    penalty = f"length penalty {decoding['length_penalty']} {decoding['length_penalty_alpha']}"
    return f"beam of {decoding['beam_size']}, {penalty}"


def score_line(one: Mapping[str, Any]) -> str:
    """A score with its signature, what it was measured on and with which engine."""
    from heedful.evaluation.score import Score

    engine = f" ({one['engine']})" if one.get("engine") else ""
    return f"{one.get('data', 'not stated')}: {Score.from_dict(one)}{engine}"


def plain(value: Any) -> str:
    """A number as people write it."""
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def print_rows(rows: list[tuple[str, str]]) -> None:
    """Rows in two columns; a name that repeats is printed once."""
    width = max(len(name) for name, _ in rows)
    before = None
    for name, value in rows:
        print(printable(f"{name if name != before else '':<{width}}  {value}"))
        before = name
