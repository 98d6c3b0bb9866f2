"""The model card: what a model is, what it was trained on, and its scores.

It is written from the configuration and from `details`, plain data in which every key may be absent:

    num_parameters, weights_size
    data       the preflight's report (`PreflightReport.to_dict`): what was read, kept and dropped, with checksums
    training   {"steps": ..., "tokens": ..., "minutes": ..., "device": ..., "valid_loss": ...}: any names and numbers
    versions   {"heedful": "0.1.0", "torch": "2.13.0", ...}
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

from heedful.config import Config, ModelConfig
from heedful.config_loading import to_mapping
from heedful.text.corpus import short_name
from heedful.text.language_routing import format_initial_directions, trained_directions

NOT_STATED = "not stated"


def model_card(config: Config, details: Mapping[str, Any], scores: Sequence[Mapping[str, Any]]) -> str:
    """The card of a model in Markdown, with the front matter that model hubs read."""
    sections = [
        _front_matter(config, details, scores),
        f"# {_inline(title(config, details))}\n\n{_summary(config, details)}",
        f"## Use\n\n{_use(config.model, _languages(config, details)[1])}",
        f"## Scores\n\n{_scores(scores, rounded='compact' in details)}",
        f"## Data\n\n{_data(details.get('data'))}",
        f"## Training\n\n{_table(('', ''), _rows(details.get('training')))}",
        f"## Configuration\n\n{_fenced('yaml', _yaml(public_config(config)))}",
        f"## Versions\n\n{_table(('', ''), _rows(details.get('versions')))}",
        f"## Limitations\n\n{_limitations(config.model)}",
    ]
    return "\n\n".join(sections) + "\n"


def title(config: Config, details: Mapping[str, Any]) -> str:
    """The model's name, or by default its languages."""
    if config.name:
        return config.name
    if config.model.is_language_model:
        return {"encoder": "A masked language model", "decoder": "A language model"}[config.model.architecture]
    sources, targets = _languages(config, details)
    if sources and targets:
        return f"Translation from {', '.join(sources)} to {', '.join(targets)}"
    return "A text-to-text model"


def versions() -> dict[str, str]:
    """Versions of the packages that a model saved now depends on."""
    from heedful import __version__

    found = {"heedful": __version__, "python": platform.python_version()}
    for package in ("torch", "sentencepiece", "sacrebleu", "safetensors", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def public_config(config: Config) -> dict[str, Any]:
    """The configuration without local folders."""
    plain = to_mapping(config)
    del plain["output"]
    parts, keys = ("train", "valid", "test"), ("source", "target", "path", "text")
    names = file_names(corpus[key] for part in parts for corpus in plain["data"][part] for key in keys if corpus[key])
    for part in parts:
        for corpus in plain["data"][part]:
            corpus.update({key: names[corpus[key]] for key in keys if corpus[key]})
        plain["data"][part] = [{k: v for k, v in corpus.items() if v is not None} for corpus in plain["data"][part]]
    plain["data"]["prepared"] = base_name(plain["data"]["prepared"])
    plain["tokenizer"]["path"] = base_name(plain["tokenizer"]["path"])
    plain["training"]["init_from"] = base_name(plain["training"]["init_from"])
    return plain


def file_names(paths: Iterable[str]) -> dict[str, str]:
    """A name for each corpus file: with its folder, or with two folders if names would be equal."""
    names = {path: short_name(path) for path in paths}
    count = Counter(names.values())
    return {path: name if count[name] == 1 else short_name(path, num_folders=2) for path, name in names.items()}


def base_name(path: Any) -> Any:
    """The last part of a path in the notation of any operating system."""
    return path if path is None else str(path).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def _languages(config: Config, details: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    pairs = trained_directions(config.data, details)
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    return list(dict.fromkeys(filter(None, sources))), list(dict.fromkeys(filter(None, targets)))


def _front_matter(config: Config, details: Mapping[str, Any], scores: Sequence[Mapping[str, Any]]) -> str:
    sources, targets = _languages(config, details)
    task = {"encoder": "fill-mask", "decoder": "text-generation"}.get(config.model.architecture, "translation")
    fields: dict[str, Any] = {
        "language": list(dict.fromkeys([*sources, *targets])),
        "license": config.licence or "unknown",
        "library_name": "heedful",
        "pipeline_tag": task,
        "tags": [task, config.model.architecture, "heedful"],
        "metrics": list(dict.fromkeys(_metric(score) for score in scores if score["value"] is not None)),
    }
    return f"---\n{_yaml({key: value for key, value in fields.items() if value})}---"


def _metric(score: Mapping[str, Any]) -> str:
    name = str(score.get("name", "")).lower()
    return "chrf" if name.startswith("chrf") else {"exactmatch": "exact_match"}.get(name, name)


def _summary(config: Config, details: Mapping[str, Any]) -> str:
    model = config.model
    layers = format_layers(model.architecture, model.num_encoder_layers, model.num_decoder_layers)
    vocabulary = f"{model.source_vocab_size:,} source and {model.target_vocab_size:,} target subwords"
    if config.tokenizer.joint:
        shared = "" if model.is_language_model else ", shared by both sides"
        vocabulary = f"{model.target_vocab_size:,} subwords{shared}"
    direction = [] if model.is_language_model else [("Direction", _direction(config, details))]
    rows = [
        *direction,
        ("Model", f"{_kind(model)}, {layers}, width {model.d_model}"),
        ("Parameters", _number(details.get("num_parameters", NOT_STATED))),
        ("Vocabulary", vocabulary),
        ("Longest sentence", f"{model.max_length:,} subwords"),
        ("File of weights", _size(details.get("weights_size"))),
        ("Licence", config.licence or NOT_STATED),
    ]
    return _table(("", ""), rows)


def format_layers(architecture: str, num_encoder_layers: int, num_decoder_layers: int) -> str:
    """The number of layers of each stack that a model has."""
    if architecture == "encoder":
        return f"{num_encoder_layers} encoder layer{'s' * (num_encoder_layers != 1)}"
    if architecture == "decoder":
        return f"{num_decoder_layers} decoder layer{'s' * (num_decoder_layers != 1)}"
    return f"{num_encoder_layers} encoder and {num_decoder_layers} decoder layers"


def _direction(config: Config, details: Mapping[str, Any]) -> str:
    pairs = trained_directions(config.data, details)
    directions = ", ".join(f"{pair.source or NOT_STATED} → {pair.target or NOT_STATED}" for pair in pairs)
    return directions + format_initial_directions(pairs, details)


def _kind(model: ModelConfig) -> str:
    """The architecture in words."""
    if model.architecture == "recurrent":
        scoring = "Bahdanau's" if model.attention_scoring == "additive" else "Luong's"
        return f"recurrent encoder-decoder ({model.cell.upper()}) with {scoring} attention{_attention_kinds(model)}"
    if model.architecture == "convolutional":
        return f"convolutional encoder-decoder with kernels of {model.kernel_size}"
    kind = {"encoder": "encoder-only", "decoder": "decoder-only"}.get(model.architecture, "encoder-decoder")
    return f"{kind} Transformer with {model.num_heads} heads{_attention_kinds(model)}"


def _attention_kinds(model: ModelConfig) -> str:
    """The kinds of attention that are not global, as an addition to the architecture."""
    places = {"self-attention": model.self_attention, "cross-attention": model.cross_attention}
    return "".join(f", {kind.replace('_', ' ')} {place}" for place, kind in places.items() if kind != "global")


def _use(model: ModelConfig, targets: Sequence[str]) -> str:
    """How to translate, with the first of several target languages; or how to generate text."""
    if model.is_language_model:
        return _use_language_model(model)
    target = targets[0] if len(targets) > 1 else None
    argument, flag = (f', target_language="{target}"', f" --to {target}") if target else ("", "")
    lines = (
        "import heedful",
        'translator = heedful.Translator.load("path/of/this/directory")',
        f'print(translator.translate(["A sentence."]{argument})[0].text)',
    )
    shell = f'or `heedful translate -m path/of/this/directory{flag} "A sentence."` in a shell.'
    return f"{_fenced('python', chr(10).join(lines))}\n\n{shell}"


def _use_language_model(model: ModelConfig) -> str:
    call, text = ("generate", "Some words to continue"), "Some words to continue"
    if model.architecture == "encoder":
        call, text = ("fill_masks", "A word is <mask> here."), "A word is <mask> here."
    lines = (
        "import heedful",
        'model = heedful.TextGenerator.load("path/of/this/directory")',
        f'print(model.{call[0]}(["{call[1]}"])[0][0].text)',
    )
    shell = f'or `heedful generate -m path/of/this/directory "{text}"` in a shell.'
    return f"{_fenced('python', chr(10).join(lines))}\n\n{shell}"


def _scores(scores: Sequence[Mapping[str, Any]], *, rounded: bool) -> str:
    if not scores:
        return "This model has not been scored."
    rows = []
    engines = any(score.get("engine") for score in scores)
    for score in scores:
        interval = score.get("interval")
        within = f"{interval['low']:.2f}–{interval['high']:.2f}" if interval else ""
        on = short_name(str(score["data"])) if score.get("data") else NOT_STATED
        by = [score.get("engine") or NOT_STATED] if engines else []
        value = "undefined" if score["value"] is None else f"{score['value']:.2f}"
        value = f"{value} ({score['remark']})" if score.get("remark") else value
        rows.append((score["name"], value, within, on, *by, f"`{score['signature']}`"))
    head = ("Metric", "Value", "95 %", "On", *(["Engine"] if engines else []), "Signature")
    table = _table(head, rows)
    is_before = rounded and any(score.get("engine") != "native int8" for score in scores)
    return f"Measured before the weights were rounded to int8.\n\n{table}" if is_before else table


def _data(data: Any) -> str:
    corpora = data.get("corpora") if isinstance(data, Mapping) else None
    if not corpora:
        return f"The data is {NOT_STATED}."
    rows, files = [], []
    names = file_names(str(file["path"]) for corpus in corpora for file in corpus.get("files", ()))
    for corpus in corpora:
        named = [(names[str(file["path"])], f"`{file['sha256']}`") for file in corpus.get("files", ())]
        files += named
        dropped = [f"{count:,} {reason}" for reason, count in corpus.get("dropped", {}).items() if count]
        counts = [_number(corpus.get(key, "")) for key in ("num_read", "num_kept", "num_held_out")]
        rows.append((corpus.get("role", ""), ", ".join(name for name, _ in named), *counts, ", ".join(dropped)))
    unit = "Lines" if any(corpus.get("is_text") for corpus in corpora) else "Pairs"
    counted = _table(("Use", "Files", f"{unit} read", "Kept", "Held out for valid", "Dropped"), rows)
    return f"{counted}\n\n{_table(('File', 'SHA-256'), dict.fromkeys(files))}"


def _rows(plain: Any) -> list[tuple[str, str]]:
    if not isinstance(plain, Mapping):
        return []
    shown = {key: value for key, value in plain.items() if value is not None and not isinstance(value, (dict, list))}
    return [(key.replace("_", " "), _number(value)) for key, value in shown.items()]


def _limitations(model: ModelConfig) -> str:
    if model.is_language_model:
        return (
            "This is a small language model for study, trained on one text with the layers of a translation model. It "
            "has learned the words and phrases of that text and nothing else: no facts, no instructions, no dialogue. "
            "What it writes may be ungrammatical, untrue or offensive, and may repeat its text word for word. Its "
            "perplexity can be compared only with that of models measured on the same text, for each character, or "
            "for each token with the same vocabulary."
        )
    return (
        "The model knows only what its data shows: text of other kinds, rare names, numbers and very short or long "
        "inputs may be translated wrongly, and wrong translations can read well. It may repeat biases of its data. "
        "Inputs much longer than the sentences of its training are split into sentences first. "
        "Have a person check translations on which something depends."
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    rows = [[_inline(str(cell)) for cell in row] for row in rows]
    if not rows:
        return NOT_STATED.capitalize() + "."
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _inline(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _yaml(plain: Any) -> str:
    import yaml

    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=1000))


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _size(num_bytes: Any) -> str:
    return f"{num_bytes / 1e6:,.1f} MB" if isinstance(num_bytes, (int, float)) else NOT_STATED
