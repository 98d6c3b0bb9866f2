"""Change the code in many small ways, and see whether the tests notice.

    python .ci/mutation_run.py --sample 150                    before a release
    python .ci/mutation_run.py --module heedful/model/attention.py

Each mutant is one change in a copy of the package: a comparison, a boolean or arithmetic operator, a number, a
negated condition, a removed call, `raise` or check. The nearest tests run on it, in a process forked from one that has
imported everything: those that execute the changed statement, the fastest first, and those that execute none of the
module, as they may run it in another process. For the C++ of the file reader, all its tests run, then
`.ci/native_fuzz_rounds.py` under the sanitizers. Survivors are printed with their lines. `REMOVED_CHECKS` are bounds
checks of the C++ that the fuzzer alone must miss. The sample is drawn from a seed, with the same number from each
module. Exit code 1 if less than 90 % are killed or the fuzzer misses a removed check.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import gc
import inspect
import json
import operator
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import pytest

sys.path.insert(0, str(Path(__file__).parent))
import native_fuzz

ROOT = Path(__file__).resolve().parents[1]
SOURCES = "heedful/native/src"
READER_TESTS = ("tests/native/test_weight_file.py", "tests/native/test_shortlist.py")
HEADER_TESTS = ("tests/model_dir/test_safetensors_header.py", "tests/model_dir/test_weight_shapes.py")
SAVE_LOAD_TESTS = ("tests/model_dir/test_save_load.py",)
TESTS = {
    "heedful/model/attention.py": ("tests/model/test_packing_and_perturbation.py", "tests/model/test_attention.py"),
    "heedful/model/kv_cache.py": ("tests/model/test_kv_cache.py",),
    "heedful/decoding/search.py": ("tests/decoding/test_search.py",),
    "heedful/data/packing.py": ("tests/data/test_packing.py",),
    "heedful/model_dir/files.py": ("tests/model_dir/test_files.py", *SAVE_LOAD_TESTS),
    "heedful/model_dir/weights.py": (*HEADER_TESTS, "tests/model_dir/test_int8_weights.py", *SAVE_LOAD_TESTS),
    "heedful/model_dir/save_load.py": SAVE_LOAD_TESTS,
    "heedful/training/checkpoint.py": ("tests/training/test_checkpoint.py",),
    "heedful/config.py": ("tests/test_config.py",),
    "heedful/directory_lock.py": tuple(
        f"tests/test_directory_lock.py::test_{name}"
        for name in (
            "second_process_is_refused_and_first_is_named",
            "lock_is_reentrant",
            "lock_file_holds_pid_host_and_command_of_its_owner",
            "lock_file_is_readable_by_others_and_closed_at_the_end",
            "refused_lock_closes_its_file_and_keeps_that_of_the_owner",
            "lock_file_that_is_a_link_is_not_followed",
        )
    ),
    "heedful/atomic_files.py": ("tests/test_atomic_files.py",),
    f"{SOURCES}/weight_file.cpp": READER_TESTS,
    f"{SOURCES}/shortlist.cpp": READER_TESTS,
}
"""The modules that promises of docs/reliability.md depend on, each with its nearest tests."""

NOT_SLOW = "not killed_save and not readers_see"
"""Tests that take more than 10 s are left out, as are those marked `slow`."""

REMOVED_CHECKS = (
    ("weight_file.cpp", "ENTRIES_AT + num_tensors_ * sizeof(Entry) > size_", "false"),
    ("weight_file.cpp", "entry.offset > size_", "false"),
    ("weight_file.cpp", "entry.bytes > size_ - entry.offset", "false"),
    ("weight_file.cpp", "entry.bytes != width * entry.rows * entry.columns", "false"),
    ("weight_file.cpp", "entry->rows != rows", "false"),
    ("shortlist.cpp", "std::is_sorted(starts_.begin(), starts_.end())", "true"),
    ("shortlist.cpp", "token >= 0 && token < vocab_size_", "true"),
    ("beam_search.cpp", "tokens[i] < 0 || tokens[i] >= vocab_size", "false"),
    ("beam_search.cpp", "length < 1 || length > shape.max_length", "false"),
)
"""File, text and what takes its place. Not here: checks behind which another one refuses the same input."""


MOST_MEMORY = 24 * 2**30
"""Bytes of address space of a test process: a mutant may allocate without end."""


@dataclass(frozen=True)
class Mutant:
    """One changed file."""

    module: str
    line: int
    before: str
    after: str
    source: str
    changed_lines: frozenset[int] = frozenset()  # of the module as `ast.unparse` writes it

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before} → {self.after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=150, help="number of mutants; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", action="append", help="only this module; repeatable")
    parser.add_argument("--limit", type=float, help="seconds for the tests of a mutant; else from their usual duration")
    parser.add_argument("--fuzz-seconds", type=float, default=20.0, help="for each mutant of the C++")
    parser.add_argument("--checks", action=argparse.BooleanOptionalAction, default=True, help="remove checks too")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run(Path(folder), chosen))


def run(folder: Path, chosen: argparse.Namespace) -> int:
    """Run the mutants and print what came of them. Return the exit code."""
    place = folder / "copy"
    copy_package(place)
    preload()
    modules = chosen.module or list(TESTS)
    engine = Engine(place, folder) if any(name.endswith(".cpp") for name in modules) or chosen.checks else None
    survivors, killed = [], dict.fromkeys(modules, 0)
    drawn = draw({module: mutants(module) for module in modules}, chosen.sample, chosen.seed)
    for module in modules:
        some = [mutant for mutant in drawn if mutant.module == module]
        if module.endswith(".cpp"):
            assert engine
            outcomes = run_cpp_mutants(place, module, some, chosen, engine)
        else:
            outcomes = run_python_mutants(place, module, some, chosen.limit)
        for mutant, is_killed in outcomes:
            killed[module] += is_killed
            if not is_killed:
                survivors.append(mutant)
                say(f"survived {mutant}")
        count = sum(mutant.module == module for mutant in drawn)
        sys.stderr.write(f"{module}: {killed[module]} of {count} killed\n")
    missed = [check for check in REMOVED_CHECKS if engine and chosen.checks and not engine.is_missed(check, chosen)]
    say("| module | mutants | killed |\n|---|---:|---:|")
    for module in modules:
        count = sum(mutant.module == module for mutant in drawn)
        say(f"| {module} | {count} | {killed[module]} |")
    share = sum(killed.values()) / max(1, len(drawn))
    say(f"| all | {len(drawn)} | {sum(killed.values())} ({share:.1%}) |")
    for name, text, _ in missed:
        say(f"The fuzzer did not notice that {name} lacks: {text}")
    if engine and chosen.checks:
        say(f"{len(REMOVED_CHECKS) - len(missed)} of {len(REMOVED_CHECKS)} removed checks noticed by the fuzzer")
    return 1 if missed or share < 0.9 else 0


def say(text: str) -> None:
    """A line of the report."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def copy_package(place: Path) -> None:
    """Copy what the tests need."""
    ignored = shutil.ignore_patterns("__pycache__", ".git", "*.so")
    for name in ("heedful", "tests", "configs", "examples", "pyproject.toml", "README.md"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, place / name)
    for path in (ROOT / "heedful/native").glob("*.so"):
        shutil.copy2(path, place / "heedful/native")


def preload() -> None:
    """Import once what every test process needs; nothing of heedful, which the mutants change."""
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    import beartype  # noqa: F401
    import pytest  # noqa: F401
    import safetensors.torch  # noqa: F401
    import sentencepiece  # noqa: F401
    import torch  # noqa: F401


# ---- mutants of Python -----------------------------------------------------------------------------------------------

COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
Change = Callable[[ast.AST], None]


def mutants(module: str) -> list[Callable[[], Mutant]]:
    """All mutants of a file, as functions that make them."""
    text = (ROOT / module).read_text(encoding="utf-8")
    if module.endswith(".cpp"):
        return [partial(Mutant, *parts) for parts in cpp_mutants(module, text)]
    return [
        partial(python_mutant, module, text, number, turn)
        for number, node in enumerate(sites(ast.parse(text)))
        for turn, _ in enumerate(changes_of(node))
    ]


def python_mutant(module: str, text: str, number: int, turn: int) -> Mutant:
    """The mutant with one change of the node with this number."""
    tree, unchanged = ast.parse(text), ast.unparse(ast.parse(text))
    original_lines = {
        copied.lineno: node.lineno
        for node, copied in zip(ast.walk(tree), ast.walk(ast.parse(unchanged)), strict=True)
        if isinstance(node, ast.stmt) and isinstance(copied, ast.stmt)
    }
    node = next(islice(sites(tree), number, None))
    next(islice(changes_of(node), turn, None))(node)
    source = ast.unparse(ast.fix_missing_locations(tree))
    old, new = unchanged.splitlines(), source.splitlines()
    parts = [part for part in difflib.SequenceMatcher(None, old, new, False).get_opcodes() if part[0] != "equal"]
    before = " ".join(line.strip() for _, begin, end, _, _ in parts for line in old[begin:end])[:160]
    after = " ".join(line.strip() for _, _, _, begin, end in parts for line in new[begin:end])[:160]
    statements = [one for one in ast.walk(ast.parse(unchanged)) if isinstance(one, ast.stmt)]
    changed = frozenset(
        max(one.lineno for one in statements if one.lineno <= line + 1 <= (one.end_lineno or 0))
        for _, begin, end, _, _ in parts
        for line in range(begin, end)
    )
    line = max((original_lines[line] for line in original_lines if line <= min(changed, default=0)), default=0)
    return Mutant(module, line, before, after, source, changed)


def sites(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that a mutant may change: not annotations, defaults of fields, texts, errors, or what types need."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "keywords") and not isinstance(node, ast.Call):
            continue
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.AnnAssign) and name == "value" and isinstance(node.value, ast.Constant):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from sites(child)


def changes_of(node: ast.AST) -> Iterator[Change]:
    """What may be changed at a node, as functions that change the same node of another tree."""
    match node:
        case ast.Compare(ops=ops):
            for number, found in enumerate(ops):
                for other in COMPARISONS[type(found)]:
                    yield lambda same, n=number, o=other: operator.setitem(same.ops, n, o())  # type: ignore[misc, attr-defined]
        case ast.BoolOp(op=found_op):
            yield _setting("op", ast.Or() if isinstance(found_op, ast.And) else ast.And())
        case ast.BinOp(left=left, op=found_op, right=right) if type(found_op) in OPERATORS:
            if not any(_is_text(side) for side in (left, right)):
                yield _setting("op", OPERATORS[type(found_op)]())
        case ast.AugAssign(op=found_op) if type(found_op) in OPERATORS:
            yield _setting("op", OPERATORS[type(found_op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _setting("operand", ast.UnaryOp(ast.Not(), operand))
        case ast.Constant(value=bool() | int() | float() as value):
            yield _setting("value", not value if isinstance(value, bool) else value + 1)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield _setting("test", ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=[test, *_]):
            yield _setting("ifs", [ast.UnaryOp(ast.Not(), test)])
    yield from removals_of(node)


def removals_of(node: ast.AST) -> Iterator[Change]:
    """The same for statements that may be removed."""
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        for number, statement in enumerate(body if isinstance(body, list) else []):
            is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
            if is_call or isinstance(statement, (ast.Raise, ast.Break, ast.Continue)):
                yield lambda same, m=name, n=number: operator.setitem(getattr(same, m), n, ast.Pass())  # type: ignore[misc]


def _setting(name: str, value: object) -> Change:
    return lambda same: setattr(same, name, value)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


# ---- mutants of C++ --------------------------------------------------------------------------------------------------

CPP = (
    (r"(?<= )<(?= )", "<="), (r"(?<= )<=(?= )", "<"), (r"(?<= )>(?= )", ">="), (r"(?<= )>=(?= )", ">"),
    (r"(?<= )==(?= )", "!="), (r"(?<= )!=(?= )", "=="), (r"(?<= )&&(?= )", "||"), (r"(?<= )\|\|(?= )", "&&"),
    (r"(?<= )\+(?= )", "-"), (r"(?<= )-(?= )", "+"), (r"(?<= )\*(?= )", "+"), (r"\+=", "-="),
    (r"(?<![\w.])(\d+)(?![\w.])", None), (r"(?<=if \()(.*)(?=\) (?:damaged|throw|return|continue))", "false"),
    (r"^ *check\(.*;$", ";"), (r"^ *check_limits\(.*;$", ";"),
)  # fmt: skip


def cpp_mutants(module: str, text: str) -> Iterator[tuple[str, int, str, str, str]]:
    lines = text.split("\n")
    for number, line in enumerate(lines):
        code = re.sub(r'//.*|"(?:[^"\\]|\\.)*"', lambda found: " " * len(found[0]), line)
        if "#" in code or "static_assert" in code or "template" in code:
            continue
        for pattern, other in CPP:
            for found in re.finditer(pattern, code):
                new = other if other is not None else str(int(found[0]) + 1)
                changed = line[: found.start()] + new + line[found.end() :]
                source = "\n".join([*lines[:number], changed, *lines[number + 1 :]])
                yield module, number + 1, line.strip()[:160], changed.strip()[:160], source


class Engine:
    """The native engine of the copy: compiled plainly, and with sanitizers; a mutant compiles one file again."""

    def __init__(self, place: Path, folder: Path) -> None:
        self.place, self.folder = place, folder
        self.flags = {"plain": ("-O1",), "sanitized": (*native_fuzz.FLAGS, "-O0")}
        for kind in self.flags:
            (folder / kind).mkdir()
        from heedful.native import build

        self.build = build
        for kind in self.flags:
            for path in build.source_files():
                if not self.compile(kind, path, self.folder / kind / f"{path.stem}.o"):
                    raise SystemExit(f"cannot compile {path.name}")

    def compile(self, kind: str, path: Path, to: Path) -> bool:
        """Compile one file. Return whether that worked."""
        flags = [*self.build.FLAGS, *self.build.KERNEL_FLAGS.get(path.name, []), *self.flags[kind]]
        command = [str(self.build.find_compiler()), *flags, f"-I{ROOT / SOURCES}", "-c", str(path), "-o", str(to)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def put(self, kind: str, name: str, source: str) -> bool:
        """Put the library with one changed file into the copy. Return whether it could be compiled."""
        changed = self.folder / name
        changed.write_text(source, encoding="utf-8")
        there, kept = self.folder / kind / f"{Path(name).stem}.o", self.folder / "kept.o"
        shutil.copy(there, kept)
        try:
            return self.compile(kind, changed, there) and self.link(kind)
        finally:
            shutil.copy(kept, there)

    def link(self, kind: str) -> bool:
        """Link the objects into the copy's library."""
        for path in (self.place / "heedful/native").glob("*.so"):
            path.unlink()
        objects = sorted(map(str, (self.folder / kind).glob("*.o")))
        command = [str(self.build.find_compiler()), "-shared", "-pthread", *self.flags[kind], *objects]
        command += ["-o", str(self.place / "heedful/native/_engine.so")]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def fuzzed(self, name: str, source: str, seconds: float) -> bool:
        """Whether the fuzzer notices a changed file."""
        if not self.put("sanitized", name, source):
            return True
        command = [sys.executable, str(ROOT / ".ci/native_fuzz_rounds.py"), str(seconds), "1"]
        environment = native_fuzz.sanitizer_environment(self.place)
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, check=False, timeout=120 + 10 * seconds, cwd=self.place
            )
        except subprocess.TimeoutExpired:
            return True
        finally:
            self.link("plain")
        return done.returncode != 0

    def is_missed(self, check: tuple[str, str, str], chosen: argparse.Namespace) -> bool:
        """Whether the fuzzer notices that the engine misses a check."""
        name, text, other = check
        source = (ROOT / SOURCES / name).read_text(encoding="utf-8")
        assert source.count(text) == 1, f"{name} has {source.count(text)} times: {text}"
        return self.fuzzed(name, source.replace(text, other), chosen.fuzz_seconds)


# ---- running ---------------------------------------------------------------------------------------------------------


def draw(found: dict[str, list[Callable[[], Mutant]]], count: int, seed: int) -> list[Mutant]:
    """As many mutants of each module, as far as it has them; all if `count` is 0."""
    if count == 0:
        return [make() for some in found.values() for make in some]
    shuffled = {module: random.Random(f"{seed} {module}").sample(some, len(some)) for module, some in found.items()}
    drawn: list[Callable[[], Mutant]] = []
    for turn in range(max(map(len, shuffled.values()))):
        drawn += [some[turn] for some in shuffled.values() if turn < len(some)]
    return [make() for make in drawn[:count]]


@dataclass(frozen=True)
class TestRun:
    """What one test did on the unchanged code."""

    seconds: float
    lines: frozenset[int]


class ForkServer:
    """A pytest plugin that runs the collected tests in a forked process for each mutant of a Python module.

    When the tests have been collected, everything is imported. In the child, the changed code replaces that of the live
    functions. A mutant that changes what an import executes gets no outcome here.
    """

    def __init__(self, path: Path, drawn: Sequence[Mutant], limit: float | None, to: Path) -> None:
        self.path, self.drawn, self.limit, self.to = path, drawn, limit, to
        self.unchanged = path.read_text(encoding="utf-8")
        self.report = os.fdopen(os.dup(sys.stderr.fileno()), "w")  # what pytest does not capture

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        code = self.compile(self.unchanged)
        functions = [one for one in gc.get_objects() if type(one) is FunctionType]
        functions = [one for one in functions if one.__code__.co_filename == str(self.path)]
        gc.freeze()
        recorded = self.record(session, functions)
        killed: dict[int, bool] = {}
        for number, mutant in enumerate(self.drawn):
            changed = self.compile(mutant.source)
            if run_by_import(code) != run_by_import(changed):
                continue
            tests = covering(recorded, mutant)
            limit = self.limit or 30 + 4 * sum(recorded[test].seconds for test in tests)
            write_later(self.path, mutant.source)  # for tests that start another process
            killed[number] = not in_child(partial(self.passes, session, tests, functions, changed), limit, self.to)
            write_later(self.path, self.unchanged)
            self.say(f"{'killed' if killed[number] else 'SURVIVED'} {mutant}")
        if all(killed.values()):  # by the mutants, not by the order of the tests or the replaced code
            tests = sorted(recorded, key=lambda test: recorded[test].seconds)
            if not in_child(partial(self.passes, session, tests, functions, code), 1200, self.to):
                raise session.Failed("the tests fail in another order")
        runs = {test: [done.seconds, sorted(done.lines)] for test, done in recorded.items()}
        self.to.write_text(json.dumps({"tests": runs, "killed": list(killed.items())}), encoding="utf-8")
        return True

    def compile(self, source: str | ast.Module) -> CodeType:
        return cast(CodeType, compile(source, str(self.path), "exec", dont_inherit=True))

    def say(self, text: str) -> None:
        self.report.write(f"{text}\n")
        self.report.flush()

    def passes(
        self, session: pytest.Session, tests: Sequence[str], functions: list[FunctionType], code: CodeType
    ) -> bool:
        """In a child: run tests with other code in the module's functions until one fails."""
        replace_code(functions, code)
        items = in_order(session.items, tests)
        for item, following in zip_longest(items, items[1:]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return False
        return True

    def record(self, session: pytest.Session, functions: list[FunctionType]) -> dict[str, TestRun]:
        """Which lines of the module each test executes, as `ast.unparse` writes it, and for how long it runs."""
        begin = time.monotonic()
        if not in_child(partial(self.record_in_child, session, functions), 1200, self.to):
            raise session.Failed("the tests fail without any change")
        self.say(f"{self.path.name}: {len(session.items)} tests, {time.monotonic() - begin:.1f} s")
        found = json.loads(self.to.read_text(encoding="utf-8"))
        return {test: TestRun(seconds, frozenset(lines)) for test, (seconds, lines) in found.items()}

    def record_in_child(self, session: pytest.Session, functions: list[FunctionType]) -> bool:
        lines: set[int] = set()
        functions[0].__globals__["__line__"] = lines.add
        replace_code(functions, self.compile(with_line_calls(ast.unparse(ast.parse(self.unchanged)))))
        found: dict[str, tuple[float, list[int]]] = {}
        for item, following in zip_longest(session.items, session.items[1:]):
            lines.clear()
            begin = time.monotonic()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            found[item.nodeid] = (time.monotonic() - begin, sorted(lines))
        self.to.write_text(json.dumps(found), encoding="utf-8")
        return not session.testsfailed


class Selection:
    """A pytest plugin that runs only the given tests."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.tests = tests

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = in_order(items, self.tests)


def in_order(items: list[pytest.Item], tests: Sequence[str]) -> list[pytest.Item]:
    """The chosen tests, file by file, in the given order within each file."""
    order = {test: number for number, test in enumerate(tests)}
    files = {item.path: number for number, item in reversed(list(enumerate(items)))}
    chosen = [item for item in items if item.nodeid in order]
    return sorted(chosen, key=lambda item: (files[item.path], order[item.nodeid]))


def codes_within(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_within(constant)


def run_by_import(code: CodeType) -> list[object]:
    """What an import executes: the code of a module and of its classes, without that of the functions."""
    found: list[object] = [code.co_code, code.co_names]
    for constant in code.co_consts:
        if not isinstance(constant, CodeType):
            found.append(repr(constant))
        elif not constant.co_flags & inspect.CO_OPTIMIZED:  # a class
            found += run_by_import(constant)
    return found


def replace_code(functions: list[FunctionType], module: CodeType) -> None:
    """Give live functions the code that they have in another version of their module."""
    changed = {code.co_qualname: code for code in codes_within(module)}
    for function in functions:
        if function.__code__.co_qualname in changed:
            function.__code__ = changed[function.__code__.co_qualname]


def with_line_calls(source: str) -> ast.Module:
    """The module with a call of `__line__` before each statement inside its functions."""

    class Calls(ast.NodeTransformer):
        inside = False

        def generic_visit(self, node: ast.AST) -> ast.AST:
            before, self.inside = self.inside, self.inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            super().generic_visit(node)
            for name in ("body", "orelse", "finalbody"):
                body = getattr(node, name, None)
                if self.inside and isinstance(body, list) and not isinstance(node, ast.ClassDef):
                    setattr(node, name, [part for statement in body for part in (self.call(statement), statement)])
            self.inside = before
            return node

        def call(self, statement: ast.stmt) -> ast.stmt:
            call = ast.Expr(ast.Call(ast.Name("__line__", ast.Load()), [ast.Constant(statement.lineno)], []))
            return ast.copy_location(call, statement)

    return cast(ast.Module, ast.fix_missing_locations(Calls().visit(ast.parse(source))))


def covering(recorded: dict[str, TestRun], mutant: Mutant) -> list[str]:
    """The tests that execute the changed statements, the fastest first, and those that execute none of the module.

    All tests if no test does, as for what only an import executes.
    """
    fastest_first = sorted(recorded, key=lambda test: recorded[test].seconds)
    found = [test for test in fastest_first if recorded[test].lines & mutant.changed_lines]
    return found + [test for test in fastest_first if not recorded[test].lines] if found else fastest_first


def run_python_mutants(
    place: Path, module: str, drawn: Sequence[Mutant], limit: float | None
) -> Iterator[tuple[Mutant, bool]]:
    """Whether the nearest tests of a Python module notice each of its mutants."""
    path, to = place / module, place.parent / "outcomes.json"
    if not tests_pass(place, module, 10**6, partial(ForkServer, path, drawn, limit, to)):
        raise SystemExit(f"the tests of {module} fail without any change")
    found = json.loads(to.read_text(encoding="utf-8"))
    tests, killed = sorted(found["tests"], key=lambda test: found["tests"][test][0]), dict(found["killed"])
    seconds = 30 + 4 * sum(duration for duration, _ in found["tests"].values())
    unchanged = path.read_text(encoding="utf-8")
    for number, mutant in enumerate(drawn):
        if number not in killed:
            write_later(path, mutant.source)
            killed[number] = not tests_pass(place, module, limit or seconds, partial(Selection, tests))
            write_later(path, unchanged)
        yield mutant, killed[number]


def run_cpp_mutants(
    place: Path, module: str, drawn: Sequence[Mutant], chosen: argparse.Namespace, engine: Engine
) -> Iterator[tuple[Mutant, bool]]:
    """Whether a test or the fuzzer notices each mutant of the C++. One that does not compile counts as noticed."""
    begin, name = time.monotonic(), Path(module).name
    if not tests_pass(place, module, 900):
        raise SystemExit(f"the tests of {module} fail without any change")
    limit = chosen.limit or 30 + 4 * (time.monotonic() - begin)
    for mutant in drawn:
        noticed = not engine.put("plain", name, mutant.source) or not tests_pass(place, module, limit)
        engine.link("plain")
        yield mutant, noticed or engine.fuzzed(name, mutant.source, chosen.fuzz_seconds)


def write_later(path: Path, source: str) -> None:
    """Write a module with a later time than before, so that its compiled form is never that of another mutant."""
    time_before = path.stat().st_mtime_ns
    path.write_text(source, encoding="utf-8")
    later = time_before + 2 * 10**9
    os.utime(path, ns=(later, later))


def tests_pass(place: Path, module: str, limit: float, plugin: Callable[[], object] | None = None) -> bool:
    """Run the nearest tests of a module in a forked process that imports heedful again."""
    return in_child(partial(run_tests, place, TESTS[module], plugin), limit, place)


def in_child(work: Callable[[], bool], limit: float, beside: Path) -> bool:
    """What `work` returns in a forked process with an empty TMPDIR; too long, or an error, is False."""
    sys.stdout.flush()
    temporary = Path(tempfile.mkdtemp(dir=beside.parent))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            os.environ["TMPDIR"] = str(temporary)
            tempfile.tempdir = None
            code = 0 if work() else 1
        finally:
            os._exit(code)
    end = time.monotonic() + limit
    try:
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status) == 0
            time.sleep(0.02)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        shutil.rmtree(temporary, ignore_errors=True)
    os.waitpid(child, 0)
    return False


def run_tests(place: Path, tests: tuple[str, ...], plugin: Callable[[], object] | None) -> bool:
    """Run tests in this process, whose standard output and error are lost."""
    plugins = [plugin()] if plugin else []
    os.environ["PYTHONPATH"] = str(place)
    os.chdir(place)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    sys.path[:0] = [str(place)]
    for name in [name for name in sys.modules if name.split(".")[0] == "heedful"]:
        del sys.modules[name]
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    import pytest

    return (
        pytest.main(["-x", "-q", "-m", "not slow", "-k", NOT_SLOW, "-p", "no:cacheprovider", *tests], plugins=plugins)
        == 0
    )


if __name__ == "__main__":
    main()
