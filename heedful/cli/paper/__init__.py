"""`heedful paper`: reproduce the tables and figures of the paper; one module per command."""

from __future__ import annotations

import typer

from heedful.cli.overrides import Verb
from heedful.cli.paper.figures import figures
from heedful.cli.paper.studies import positions, scoring
from heedful.cli.paper.table1 import table1
from heedful.cli.paper.table2 import table2
from heedful.cli.paper.table3 import table3
from heedful.cli.paper.table4 import f1, parse, table4
from heedful.cli.paper.walkthroughs import mixing, teacher_forcing, worked_example

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
    positions,
):
    paper.command(cls=Verb)(_command)
