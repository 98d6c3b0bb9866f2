"""`heedful info`: describe a model."""

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
        Path | None, typer.Argument(metavar="MODEL", help="Directory or name; default: the bundled model.")
    ] = None,
    check: Annotated[bool, typer.Option("--verify", help="Check every file against its checksum.")] = False,
    card: Annotated[bool, typer.Option("--card", help="Print the model card.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Describe a model: languages, size, training data and scores.

    \b
    heedful info model
    heedful info model --verify
    heedful info model --card > CARD.md
    """
    from heedful.model_dir import describe, verify
    from heedful.model_dir.registry import EXPORT_RECORD

    directory = model_directory(model)
    if (directory / EXPORT_RECORD).is_file():
        raise ConfigError(
            f"{directory} was exported for CTranslate2; run heedful info on the model that it was exported from."
        )
    description = describe(directory)
    verified = verify(directory) if check else []
    if card:
        print(printable((directory / "README.md").read_text(encoding="utf-8", errors="replace")), end="")
    elif as_json:
        print(json.dumps({**description, "verified": verified} if check else description, indent=2, ensure_ascii=False))
    else:
        print_rows(info_rows(description))
        if verified:
            print(f"All {len(verified)} files match their checksums.")


def info_rows(description: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The main facts about a model, as rows of name and value."""
    from heedful.model_dir.files import SHORTLIST

    config, details = description["config"], description["details"]
    model, training = config["model"], details.get("training") or {}
    layers = f"{model['num_encoder_layers']} + {model['num_decoder_layers']} layers"
    shape = f"{config['preset']}: {layers}, width {model['d_model']}, {model['num_heads']} heads"
    rows = [
        ("name", config["name"] or "not stated"),
        ("direction", format_direction(description)),
        ("licence", config["licence"] or "not stated"),
        ("parameters", f"{description['num_parameters']:,} ({format_weights(description)})"),
        ("shape", shape),
        ("vocabulary", format_vocabulary(config)),
        ("longest text", f"{model['max_length']:,} subwords"),
        ("search", format_search(config["decoding"])),
        ("shortlist", "yes" if SHORTLIST in description["files"] else "none"),
    ]
    for corpus in (details.get("data") or {}).get("corpora", []):
        rows.append(("data", f"{corpus['role']}: {corpus['name']}, {corpus['num_kept']:,} of {corpus['num_read']:,}"))
    numbers = {
        key: value for key, value in training.items() if value is not None and not isinstance(value, (Mapping, list))
    }
    facts = [f"{key.replace('_', ' ')} {format_number(value)}" for key, value in numbers.items()]
    rows.append(("training", ", ".join(facts) or "not stated"))
    rows += [("score", format_score(score)) for score in details.get("scores") or []] or [("score", "none")]
    rows.append(("created by", f"heedful {description['heedful_version']}, format {description['format_version']}"))
    return rows


def format_weights(description: Mapping[str, Any]) -> str:
    """Size, data types and number of files of the weights."""
    from heedful.model_dir.files import is_weights

    count = sum(is_weights(name) for name in description["files"])
    dtypes = "compact: I8 with scales" if description["compact"] else ", ".join(description["dtypes"])
    return f"{description['weights_size'] / 1e6:,.1f} MB, {dtypes}{f', {count} files' if count > 1 else ''}"


def format_direction(description: Mapping[str, Any]) -> str:
    """The translation directions of a model, such as `en → de`."""
    from heedful.config import Config
    from heedful.config_loading import from_mapping
    from heedful.text.language_routing import format_initial_directions, trained_directions

    pairs = trained_directions(from_mapping(Config, description["config"]).data, description["details"])
    directions = ", ".join(f"{pair.source} → {pair.target}" for pair in pairs if pair.source and pair.target)
    return (directions or "not stated") + format_initial_directions(pairs, description["details"])


def format_vocabulary(config: Mapping[str, Any]) -> str:
    """The vocabulary size, of each side if they differ."""
    model = config["model"]
    if config["tokenizer"]["joint"]:
        return f"{model['target_vocab_size']:,} subwords, shared by both sides"
    return f"{model['source_vocab_size']:,} source and {model['target_vocab_size']:,} target subwords"


def format_search(decoding: Mapping[str, Any]) -> str:
    """The default search of a model."""
    if decoding["method"] != "beam":
        return str(decoding["method"])
    penalty = f"length penalty {decoding['length_penalty']} {decoding['length_penalty_alpha']}"
    return f"beam of {decoding['beam_size']}, {penalty}"


def format_score(score: Mapping[str, Any]) -> str:
    """A score with its signature, test set and engine."""
    from heedful.evaluation.score import Score

    engine = f" ({score['engine']})" if score.get("engine") else ""
    return f"{score.get('data', 'not stated')}: {Score.from_dict(score)}{engine}"


def format_number(value: Any) -> str:
    """A number with thousands separators."""
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def print_rows(rows: list[tuple[str, str]]) -> None:
    """Print rows in two columns; a repeated name is printed once."""
    width = max(len(name) for name, _ in rows)
    previous = None
    for name, value in rows:
        print(printable(f"{name if name != previous else '':<{width}}  {value}"))
        previous = name
