"""`heedful paper scoring`: small experiments that train on a CPU."""

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
    from heedful.paper.small_training import check_seeds, check_steps

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
