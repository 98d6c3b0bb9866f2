"""The structure of the package, checked by reading its source: layers, imports, names, docstrings and sizes."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from heedful.cli import PAPER, VERBS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "heedful"


def read_layers() -> list[list[str]]:
    """The layers in CONTRIBUTING.md, highest first; a name imports only from lines below its own."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^## Layers\n.*?^```\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [line.split() for line in block.splitlines()]


LAYERS = read_layers()
WITHOUT_TORCH = ["cli", "config", "config_loading", "errors", "text", "evaluation", "native"]

MAX_FUNCTION_LINES = 60

FORBIDDEN_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "torch.load", "torch.save", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}
FORBIDDEN_PARTS = {"src", "tgt", "trg"}
"""Abbreviations that no name contains; it is `source` and `target`."""
VAGUE_NAMES = re.compile(r"utils?|helpers?|common|misc|managers?|handlers?", re.IGNORECASE)


# ---- reading the source ----------------------------------------------------------------------------------------------


@functools.cache
def files() -> tuple[Path, ...]:
    return tuple(sorted(PACKAGE.rglob("*.py")))


@functools.cache
def module_names() -> frozenset[str]:
    return frozenset(map(module_of, files()))


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))


def module_of(path: Path) -> str:
    parts = ["heedful", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(path: Path) -> str:
    """The name in LAYERS that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@functools.cache
def imports_of(path: Path) -> tuple[tuple[str, int], ...]:
    """Full names and lines of all imports, also inside functions: `heedful.model.attention`, `torch.nn`."""
    imports: list[tuple[str, int]] = []
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            imports += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, f"{relative(path)}:{node.lineno} has a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                is_module = full in module_names() or node.module == "heedful"
                imports.append((full if is_module else node.module, node.lineno))
    return tuple(imports)


def code_lines(path: Path) -> frozenset[int]:
    """Numbers of the lines with code: no blank lines, comments or docstrings."""
    lines: set[int] = set()
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in ignored:
                lines.update(range(token.start[0], token.end[0] + 1))
    for node in nodes_of(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(lines)


def dotted_name(node: ast.expr) -> str:
    """The dotted name of an expression such as `torch.load`; empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted_name(node.value)):
        return f"{before}.{node.attr}"
    return ""


# ---- imports ---------------------------------------------------------------------------------------------------------


def test_every_file_has_a_layer() -> None:
    known = {name for line in LAYERS for name in line}
    assert {part_of(path) for path in files()} == known


def test_imports_point_to_lower_layers() -> None:
    level = {name: number for number, line in enumerate(LAYERS) for name in line}
    for path in files():
        part = part_of(path)
        for imported, line in imports_of(path):
            if imported.split(".")[0] != "heedful" or part == "__init__" or imported == "heedful.__version__":
                continue
            other = imported.split(".")[1] if "." in imported else "__init__"
            assert other in level, f"{relative(path)}:{line} imports {imported}; write the module's full name"
            assert part == other or level[part] < level[other], f"{relative(path)}:{line} imports {imported}"


def test_no_import_cycles() -> None:
    graph = {
        module_of(path): {name for name, _ in imports_of(path) if name in module_names() and name != "heedful"}
        for path in files()
        if path != PACKAGE / "__init__.py"
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, whose message has the cycle


def test_module_level_imports_are_dependencies_or_of_the_train_extra() -> None:
    """Other packages are imported inside the functions that need them; kernels are written in Triton, and the server
    is only imported by the verb that needs its extra.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = [*project["dependencies"], *project["optional-dependencies"]["train"]]
    declared = {Requirement(text).name.lower() for text in installed} | {"yaml", "heedful"}
    serving = {Requirement(text).name.lower() for text in project["optional-dependencies"]["serve"]} | {"h11"}
    for path in files():
        extra = {"triton"} if path.parent.name == "kernels" else set()  # comes with torch for GPUs; imported on demand
        extra = serving if part_of(path) == "serving" else extra  # h11 comes with uvicorn
        for node in tree_of(path).body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in (name.split(".")[0] for name in names):
                is_available = name in sys.stdlib_module_names or name in declared | extra
                assert is_available, f"{relative(path)}:{node.lineno}: {name}"


def modules_loaded_by(*arguments: str) -> set[str]:
    """Top-level names of all modules that this Python command imports."""
    command = [sys.executable, "-X", "importtime", *arguments]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    timed = [line for line in process.stderr.splitlines() if line.startswith("import time:")]
    errors = "\n".join(line for line in process.stderr.splitlines() if line not in timed)
    assert process.returncode == 0, process.stdout + errors
    return {line.split("|")[-1].strip().split(".")[0] for line in timed}


@pytest.mark.parametrize("verb", ["", *VERBS, PAPER])
def test_help_loads_no_heavy_packages(verb: str) -> None:
    loaded = modules_loaded_by("-m", "heedful", *([verb] if verb else []), "--help")
    assert "heedful" in loaded
    assert not loaded & {"torch", "numpy", "sentencepiece", "sacrebleu", "tensorboard", "matplotlib"}


def test_package_imports_without_torch_and_numpy() -> None:
    loaded = modules_loaded_by("-c", "import heedful; heedful.Config(); heedful.HeedfulError")
    assert not loaded & {"torch", "numpy"}


def test_torch_free_packages_do_not_import_torch() -> None:
    modules = [module_of(path) for path in files() if part_of(path) in WITHOUT_TORCH]
    assert "torch" not in modules_loaded_by("-c", f"import {', '.join(modules)}")


# ---- forbidden calls -------------------------------------------------------------------------------------------------


def test_no_pickle_and_no_eval() -> None:
    for path in files():
        for imported, line in imports_of(path):
            assert imported.split(".")[0] not in FORBIDDEN_IMPORTS, f"{relative(path)}:{line} imports {imported}"
        for node in nodes_of(path):
            if isinstance(node, ast.Call):
                place = f"{relative(path)}:{node.lineno}"
                assert dotted_name(node.func) not in FORBIDDEN_CALLS, f"{place} calls {dotted_name(node.func)}"
                assert not any(keyword.arg == "allow_pickle" for keyword in node.keywords), f"{place} allows pickle"
            if isinstance(node, ast.ImportFrom) and node.module in ("torch", "yaml"):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                assert not names & FORBIDDEN_CALLS, f"{relative(path)}:{node.lineno} imports {names & FORBIDDEN_CALLS}"


def test_only_the_command_line_prints() -> None:
    for path in files():
        if part_of(path) != "cli":
            for node in nodes_of(path):
                is_print = isinstance(node, ast.Call) and dotted_name(node.func) == "print"
                assert not is_print, f"{relative(path)}:{getattr(node, 'lineno', 0)} prints"


# ---- names and docstrings --------------------------------------------------------------------------------------------


def names_in(path: Path) -> Iterator[tuple[str, int]]:
    """Every name that a file defines, with its line."""
    for node in nodes_of(path):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def test_names_are_not_abbreviated() -> None:
    for path in files():
        for name, line in names_in(path):
            parts = {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
            assert not parts & FORBIDDEN_PARTS, f"{relative(path)}:{line} defines {name}"


def test_files_and_classes_have_specific_names() -> None:
    for path in files():
        for part in path.relative_to(PACKAGE).with_suffix("").parts:
            assert not any(VAGUE_NAMES.fullmatch(word) for word in part.split("_")), part
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                words = re.findall(r"[A-Z][a-z]+", node.name)
                assert not any(VAGUE_NAMES.fullmatch(word) for word in words), f"{relative(path)}: {node.name}"


def test_public_functions_and_classes_have_docstrings() -> None:
    for path in files():
        tree = tree_of(path)
        assert ast.get_docstring(tree) or not tree.body, f"{relative(path)} has no docstring"
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                place = f"{relative(path)}:{node.lineno} {node.name}"
                assert node.name.startswith("_") or ast.get_docstring(node), f"{place} has no docstring"


def test_lists_of_public_names_are_sorted_and_exist() -> None:
    for path in files():
        for node in tree_of(path).body:
            if isinstance(node, ast.Assign) and any(dotted_name(target) == "__all__" for target in node.targets):
                names = ast.literal_eval(node.value)
                assert names == sorted(set(names)), relative(path)
                module = __import__(module_of(path), fromlist=names)
                assert all(hasattr(module, name) for name in names), relative(path)


def test_functions_have_at_most_60_lines_of_code() -> None:
    for path in files():
        lines = code_lines(path)
        for node in nodes_of(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = len(lines & set(range(node.lineno, (node.end_lineno or 0) + 1)))
                place = f"{relative(path)}:{node.lineno} {node.name}"
                assert length <= MAX_FUNCTION_LINES, f"{place} has {length} lines of code"


# ---- dependencies ----------------------------------------------------------------------------------------------------


def test_every_dependency_is_pinned_and_open() -> None:
    """pyproject.toml has open lower bounds, and constraints.txt one version that satisfies each."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    required = [Requirement(text) for text in (*project["dependencies"], *(text for extra in extras for text in extra))]
    required = [requirement for requirement in required if requirement.name != "heedful"]  # includes other extras
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pinned = {pin.name.lower().replace("_", "-"): str(pin.specifier).removeprefix("==") for pin in pins}
    assert all(str(pin.specifier).startswith("==") and "+" not in str(pin.specifier) for pin in pins)
    assert pinned["torch"] == "2.13.0"
    for requirement in required:
        assert requirement.specifier.contains(pinned[requirement.name.lower()]), requirement
        assert not re.search(r"==|<|~=", str(requirement.specifier)), f"{requirement} is not an open lower bound"
