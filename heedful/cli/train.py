"""`heedful train`: train a model on parallel text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heedful.cli import options
from heedful.cli.overrides import request_from_flags
from heedful.config import Config, choose_preset
from heedful.config_loading import build_config, to_mapping
from heedful.errors import ConfigError


@options.shared_options(
    before=(*options.CORPUS_OPTIONS, "init_from"), after=(*options.BUDGET_OPTIONS, "seed", "device", "settings")
)
def train(
    *,
    output: options.Output = None,
    preset: options.Preset = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    name: options.Name = None,
    licence: options.Licence = None,
    quiet: options.Quiet = False,
    dry_run: options.DryRun = False,
    **flags: Any,
) -> None:
    """Train a model on parallel text.

    \b
    heedful train --source train.en --target train.de -o model
    heedful train --data pairs.tsv.gz --preset tiny --minutes 5 -o model
    heedful train config.yaml --training.steps=1000 --model.dropout 0.2
    heedful train config.yaml --resume
    heedful train --source own.en --target own.de --init-from model -o tuned

    Every configuration key is also a flag: --section.key=value.
    """
    request = request_from_flags({**flags, "preset": preset, "output": output, "name": name, "licence": licence})
    if dry_run:
        print_configuration(resolve_config(request))
        return
    build_config(request, "base")  # reports unknown keys before torch is imported
    from heedful import training_pipeline

    training_pipeline.train(request, resume=resume, overwrite=overwrite, quiet=quiet)


def resolve_config(request: Mapping[str, Any]) -> Config:
    """The configuration of a run, with a preset chosen by the number of lines."""
    from heedful.fine_tuning import with_initial_model

    request = with_initial_model(request)
    config = build_config(request, "base")
    if request.get("preset") not in (None, "auto"):
        return config
    from heedful.build_model import resolve_device

    on_gpu = resolve_device(config.training.device).type != "cpu"
    return build_config(request, choose_preset(_count_pairs(config), on_gpu=on_gpu))


def _count_pairs(config: Config) -> int:
    """The number of lines of the training corpora, or of pairs in a prepared directory."""
    from heedful.text.corpus import corpus_files
    from heedful.text.text_files import read_lines

    if config.data.prepared is not None:
        from heedful.data.prepare import Prepared

        return len(Prepared.open(config.data.prepared).train)
    if not config.data.train:
        raise ConfigError("no corpus to train on: give --source and --target, or data.train in the configuration.")
    return sum(sum(1 for _ in read_lines(corpus_files(corpus)[0])) for corpus in config.data.train)


def print_configuration(config: Config) -> None:
    """Print a configuration as YAML that can be used as a configuration file."""
    import yaml

    plain = to_mapping(config)
    for part in ("train", "valid", "test"):
        plain["data"][part] = [{k: v for k, v in corpus.items() if v is not None} for corpus in plain["data"][part]]
    print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), end="")
