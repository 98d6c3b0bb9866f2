"""`heedful paper scoring`, `attention-kinds` and `positions`: small experiments that train on a CPU."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from heedful.cli import options
from heedful.cli.overrides import command_line

NumSeeds = Annotated[int | None, typer.Option("--seeds", help="Seeds per setting, 1 to 10.")]
Quick = Annotated[bool, typer.Option("--quick", help="Few settings and short training: a first look.")]


def scoring(
    output: options.OutputFolder,
    seeds: NumSeeds = None,
    steps: Annotated[int | None, typer.Option(help="Updates of each training run; without it 300.")] = None,
    quick: Quick = False,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    lang: options.LabelLanguage = "en",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Train additive, dot and scaled dot scoring for d_k from 4 to 512: loss, entropy of the softmax, gradients.

    \b
    heedful paper scoring -o scoring
    heedful paper scoring -o scoring --quick
    heedful paper scoring -o scoring --seeds 3 --lang zh
    """
    import dataclasses

    from heedful.console import Console
    from heedful.paper.scoring import ScoringSettings, quick_settings, run_scoring, scoring_table
    from heedful.paper.synthetic_tasks import check_seeds, check_steps

    settings = quick_settings() if quick else ScoringSettings()
    if seeds is not None:
        check_seeds(seeds)
        settings = dataclasses.replace(settings, seeds=tuple(range(1, seeds + 1)))
    if steps is not None:
        check_steps(steps)
        settings = dataclasses.replace(settings, steps=steps)
    with Console(quiet=quiet).stages() as report:
        results = run_scoring(
            output, settings=settings, command=command_line(), language=lang, overwrite=overwrite, resume=resume,
            report=report,
        )  # fmt: skip
    if as_json:
        print(json.dumps(results, indent=1, ensure_ascii=False))
    elif not quiet:
        print(scoring_table(results, lang).render("text"))
        print(f"{output / 'results.json'}, {output / 'scoring.md'}, {output / 'scoring.png'}, {output / 'scoring.svg'}")


def attention_kinds(
    output: options.OutputFolder,
    systems: Annotated[str | None, typer.Option(help="transformer, luong or both, with a comma.")] = None,
    seeds: NumSeeds = None,
    steps: Annotated[int | None, typer.Option(help="Updates of each training run; without it 500.")] = None,
    quick: Quick = False,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    lang: options.LabelLanguage = "en",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Train global, local and hard attention on copying and reversing: what each learns, and what it costs.

    \b
    heedful paper attention-kinds -o attention-kinds
    heedful paper attention-kinds -o attention-kinds --quick
    heedful paper attention-kinds -o attention-kinds --systems luong
    heedful paper attention-kinds -o attention-kinds --seeds 5 --lang zh
    """
    import dataclasses

    from heedful.console import Console
    from heedful.paper.attention_kinds import (
        SYSTEMS,
        AttentionKindsSettings,
        attention_kinds_tables,
        quick_settings,
        run_attention_kinds,
    )
    from heedful.paper.experiment_io import check_choice
    from heedful.paper.synthetic_tasks import check_seeds, check_steps

    settings = quick_settings() if quick else AttentionKindsSettings()
    if systems is not None:
        names = tuple(dict.fromkeys(systems.split(",")))
        for name in names:
            check_choice("--systems", name, SYSTEMS)
        settings = dataclasses.replace(settings, systems=names)
    if seeds is not None:
        check_seeds(seeds)
        settings = dataclasses.replace(settings, seeds=tuple(range(1, seeds + 1)))
    if steps is not None:
        check_steps(steps)
        settings = dataclasses.replace(settings, steps=steps)
    with Console(quiet=quiet).stages() as report:
        results = run_attention_kinds(
            output, settings=settings, command=command_line(), language=lang, overwrite=overwrite, resume=resume,
            report=report,
        )  # fmt: skip
    if as_json:
        print(json.dumps(results, indent=1, ensure_ascii=False))
    elif not quiet:
        for table in attention_kinds_tables(results, lang):
            print(table.render("text"))
        names = ("results.json", "attention_kinds.md", "attention_kinds.png", "attention_kinds.svg")
        print(", ".join(str(output / name) for name in names))


def positions(
    output: options.OutputFolder,
    source: Annotated[
        str | None, typer.Option("--source", "-s", metavar="FILE", help="Corpus for translation.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", "-t", metavar="FILE", help="Its target side.")] = None,
    test_source: Annotated[str | None, typer.Option(metavar="FILE", help="Test sentences.")] = None,
    test_target: Annotated[str | None, typer.Option(metavar="FILE", help="Their translations.")] = None,
    seeds: NumSeeds = None,
    quick: Quick = False,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    lang: options.LabelLanguage = "en",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Train short, test up to four times longer: sinusoidal, learned and rotary positions; probe the residual stream.

    Without corpora only copying is trained.

    \b
    heedful paper positions -o positions
    heedful paper positions -o positions --quick
    heedful paper positions -o positions -s train.en -t train.de --test-source test.en --test-target test.de
    """
    import dataclasses

    from heedful.console import Console
    from heedful.errors import ConfigError
    from heedful.paper.length_generalisation import CopySettings, TranslationSettings
    from heedful.paper.positions import PositionsSettings, positions_tables, run_positions
    from heedful.paper.synthetic_tasks import check_seeds

    files = [source, target, test_source, test_target]
    if any(files) and not all(files):
        raise ConfigError("translation needs all of --source, --target, --test-source and --test-target.")
    check_seeds(seeds if seeds is not None else 1)
    chosen = tuple(range(1, (seeds or (1 if quick else 3)) + 1))
    copy = (
        CopySettings(max_length=4, test_lengths=(2, 4, 5, 8, 16), steps=150, num_pairs=50) if quick else CopySettings()
    )
    translation = None
    if source and target and test_source and test_target:
        translation = TranslationSettings(source, target, test_source, test_target)
        if quick:
            translation = dataclasses.replace(translation, steps=30)
    settings = PositionsSettings(copy, translation, chosen)
    with Console(quiet=quiet).stages() as report:
        results = run_positions(
            output, settings=settings, command=command_line(), language=lang, overwrite=overwrite, resume=resume,
            report=report,
        )  # fmt: skip
    if as_json:
        print(json.dumps(results, indent=1, ensure_ascii=False))
    elif not quiet:
        for table in positions_tables(results, lang):
            print(table.render("text"))
        print(
            ", ".join(
                str(output / f"{name}") for name in ("results.json", "positions.md", "positions.png", "positions.svg")
            )
        )
