"""`heedful paper`: reproduce the tables and figures of the paper, and small experiments."""

from __future__ import annotations

import typer

from heedful.cli.overrides import Verb
from heedful.cli.paper.figures import figures, mixing, teacher_forcing, worked_example
from heedful.cli.paper.studies import attention_kinds, positions, scoring
from heedful.cli.paper.tables import f1, parse, table1, table2, table3, table4

paper = typer.Typer(
    help="Reproduce the tables and figures of the paper.", rich_markup_mode="rich", no_args_is_help=True
)
for _command in (
    table1,
    table2,
    table3,
    table4,
    f1,
    parse,
    figures,
    worked_example,
    teacher_forcing,
    mixing,
    scoring,
    attention_kinds,
    positions,
):
    paper.command(cls=Verb)(_command)
