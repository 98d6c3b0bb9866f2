"""Change the code in many small ways, and see whether the tests notice.

    python .ci/mutation_run.py --sample 150                    before a release
    python .ci/mutation_run.py --module heedful/model/masks.py

Each mutant is one change in a copy of the package: a comparison, a boolean or arithmetic operator, a number, a
negated condition, a removed call, `raise` or check. The nearest tests run on it, in a process forked from one that has
imported torch; then, for the C++ of the file reader, `.ci/native_fuzz_rounds.py` under the sanitizers. Survivors are
printed with their lines. `REMOVED_CHECKS` are bounds checks of the C++ that the fuzzer alone must miss. The sample is
drawn from a seed, with the same number from each module. Exit code 1 if less than 90 % are killed or the fuzzer misses
a removed check.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import operator
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import native_fuzz

ROOT = Path(__file__).resolve().parents[1]
SOURCES = "heedful/native/src"
READER_TESTS = ("tests/native/test_weight_file.py", "tests/native/test_shortlist.py")
DIRECTORY_TESTS = ("tests/model_dir/test_weight_shapes.py", "tests/model_dir/test_save_load.py")
TESTS = {
    "heedful/model/masks.py": ("tests/model/test_packing_and_perturbation.py", "tests/model/test_attention.py"),
    "heedful/model/kv_cache.py": ("tests/model/test_kv_cache.py",),
    "heedful/decoding/beam.py": ("tests/decoding/test_beam_search.py",),
    "heedful/data/packing.py": ("tests/data/test_packing.py",),
    "heedful/model_dir/files.py": DIRECTORY_TESTS,
    "heedful/model_dir/save_load.py": DIRECTORY_TESTS,
    "heedful/model_dir/weights.py": DIRECTORY_TESTS,
    "heedful/training/checkpoint.py": ("tests/training/test_checkpoint.py", "tests/training/test_resume.py"),
    "heedful/config.py": ("tests/test_config.py",),
    "heedful/directory_lock.py": ("tests/test_directory_lock.py",),
    "heedful/atomic_files.py": ("tests/test_atomic_files.py",),
    f"{SOURCES}/weight_file.cpp": READER_TESTS,
    f"{SOURCES}/shortlist.cpp": READER_TESTS,
}
"""The modules that promises of docs/reliability.md depend on, each with its nearest tests."""

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


@dataclass(frozen=True)
class Mutant:
    """One changed file."""

    module: str
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before} → {self.after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=150, help="number of mutants; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", action="append", help="only this module; repeatable")
    parser.add_argument("--limit", type=float, help="seconds for the tests of a mutant; else measured without it")
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
    limits = {module: chosen.limit or baseline(place, module) for module in modules}
    survivors, killed = [], dict.fromkeys(modules, 0)
    drawn = draw({module: mutants(module) for module in modules}, chosen.sample, chosen.seed)
    for number, mutant in enumerate(drawn, start=1):
        if is_killed(place, mutant, limits[mutant.module], engine, chosen.fuzz_seconds):
            killed[mutant.module] += 1
        else:
            survivors.append(mutant)
            say(f"survived {mutant}")
        sys.stderr.write(f"{number} of {len(drawn)}\n")
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
    tree, unchanged = ast.parse(text), ast.unparse(ast.parse(text)).splitlines()
    node = next(islice(sites(tree), number, None))
    next(islice(changes_of(node), turn, None))(node)
    source = ast.unparse(ast.fix_missing_locations(tree))
    differing = [
        line
        for line in difflib.unified_diff(unchanged, source.splitlines(), lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    before, after = (" ".join(line[1:].strip() for line in differing if line[0] == sign)[:160] for sign in "-+")
    return Mutant(module, getattr(node, "lineno", 0), before, after, source)


def sites(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that a mutant may change: not annotations, texts, the arguments of errors, or what only types need."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "keywords") and not isinstance(node, ast.Call):
            continue
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
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
    random_order = random.Random(seed)
    shuffled = {module: random_order.sample(some, len(some)) for module, some in found.items()}
    drawn: list[Callable[[], Mutant]] = []
    for turn in range(max(map(len, shuffled.values()))):
        drawn += [some[turn] for some in shuffled.values() if turn < len(some)]
    return [make() for make in drawn[:count]]


def baseline(place: Path, module: str) -> float:
    """The seconds after which the tests of a module count as failed. They must pass on the unchanged code."""
    begin = time.monotonic()
    if not tests_pass(place, module, 900):
        raise SystemExit(f"the tests of {module} fail without any change")
    seconds = time.monotonic() - begin
    sys.stderr.write(f"{module}: {seconds:.1f} s\n")
    return 30 + 4 * seconds


def is_killed(place: Path, mutant: Mutant, limit: float, engine: Engine | None, fuzz_seconds: float) -> bool:
    """Whether a test or the fuzzer notices a mutant. One that does not compile counts as noticed."""
    name = Path(mutant.module).name
    if engine and name.endswith(".cpp"):
        noticed = not engine.put("plain", name, mutant.source) or not tests_pass(place, mutant.module, limit)
        engine.link("plain")
        return noticed or engine.fuzzed(name, mutant.source, fuzz_seconds)
    path = place / mutant.module
    intact = path.read_text(encoding="utf-8")
    write_later(path, mutant.source)
    try:
        return not tests_pass(place, mutant.module, limit)
    finally:
        write_later(path, intact)


def write_later(path: Path, source: str) -> None:
    """Write a module with a later time than before, so that its compiled form is never that of another mutant."""
    time_before = path.stat().st_mtime_ns
    path.write_text(source, encoding="utf-8")
    later = time_before + 2 * 10**9
    os.utime(path, ns=(later, later))


def tests_pass(place: Path, module: str, limit: float) -> bool:
    """Run the nearest tests of a module in a forked process; too long is a failure."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.setsid()
        run_tests(place, TESTS[module])
    end = time.monotonic() + limit
    try:
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status) == 0
            time.sleep(0.05)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        shutil.rmtree(place.parent / "tmp", ignore_errors=True)
    os.waitpid(child, 0)
    return False


def run_tests(place: Path, tests: tuple[str, ...]) -> None:
    """Run tests in this process, and end it."""
    code = 1
    try:
        temporary = place.parent / "tmp"
        temporary.mkdir(exist_ok=True)
        os.environ |= {"PYTHONPATH": str(place), "TMPDIR": str(temporary)}
        tempfile.tempdir = None
        os.chdir(place)
        sys.path[:0] = [str(place)]
        for name in [name for name in sys.modules if name.split(".")[0] == "heedful"]:
            del sys.modules[name]
        nothing = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nothing, stream)
        import pytest

        code = int(pytest.main(["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
