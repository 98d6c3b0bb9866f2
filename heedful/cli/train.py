"""`heedful train`: from two text files to a model directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heedful.cli import options
from heedful.cli.overrides import request_of
from heedful.config import Config, choose_preset
from heedful.config_loading import settle, to_mapping
from heedful.errors import ConfigError


def train(
    config: options.ConfigFile = None,
    source: options.Sources = None,
    target: options.Targets = None,
    data: options.SingleFiles = None,
    source_column: options.SourceColumn = None,
    target_column: options.TargetColumn = None,
    valid_source: options.ValidSources = None,
    valid_target: options.ValidTargets = None,
    test_source: options.TestSources = None,
    test_target: options.TestTargets = None,
    prepared: options.Prepared = None,
    init_from: options.InitFrom = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    steps: options.Steps = None,
    epochs: options.Epochs = None,
    tokens: options.Tokens = None,
    minutes: options.Minutes = None,
    output: options.Output = None,
    preset: options.Preset = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    seed: options.Seed = None,
    device: options.Device = None,
    name: options.Name = None,
    licence: options.Licence = None,
    quiet: options.Quiet = False,
    dry_run: options.DryRun = False,
    settings: options.Settings = None,
) -> None:
    """Train a model on aligned text.

    \b
    heedful train --source train.en --target train.de -o model
    heedful train --data pairs.tsv.gz --preset tiny --minutes 5 -o model
    heedful train config.yaml --training.steps=1000 --model.dropout 0.2
    heedful train config.yaml --resume
    heedful train --source own.en --target own.de --init-from model -o tuned

    Every key of the configuration is also a flag: --section.key=value.
    """
    request = request_of(locals())
    if dry_run:
        print_configuration(resolve(request))
        return
    settle(request, "base")  # a wrong key is told before torch is imported
    from heedful import training_pipeline

    training_pipeline.train(request, resume=resume, overwrite=overwrite, quiet=quiet)


def resolve(request: Mapping[str, Any]) -> Config:
    """What a run would do: the preset chosen as far as the number of lines tells."""
    from heedful.fine_tuning import with_start

    request = with_start(request)
    asked = settle(request, "base")
    if request.get("preset") not in (None, "auto"):
        return asked
    from heedful.build_model import resolve_device

    on_gpu = resolve_device(asked.training.device).type != "cpu"
    return settle(request, choose_preset(_count_pairs(asked), on_gpu=on_gpu))


def _count_pairs(config: Config) -> int:
    """Lines of the training corpora, or pairs of a prepared directory."""
    from heedful.text.corpus import corpus_files
    from heedful.text.text_files import read_lines

    if config.data.prepared is not None:
        from heedful.data.prepare import Prepared

        return len(Prepared.open(config.data.prepared).train)
    if not config.data.train:
        raise ConfigError("no corpus to train on: give --source and --target, or data.train in the configuration.")
    return sum(sum(1 for _ in read_lines(corpus_files(corpus)[0])) for corpus in config.data.train)


def print_configuration(config: Config) -> None:
    """Print a configuration as a YAML file that says the same."""
    import yaml

    plain = to_mapping(config)
    for part in ("train", "valid", "test"):
        plain["data"][part] = [{k: v for k, v in corpus.items() if v is not None} for corpus in plain["data"][part]]
    print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), end="")
