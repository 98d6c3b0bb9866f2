"""The shape of the package, held by reading its source: layers, sizes, words, and what may not be used at all."""

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
FORBIDDEN_PARTS = {"src", "tgt", "trg"}  # of names; `source` and `target` are the words
FORBIDDEN_HOMES = re.compile(r"utils?|helpers?|common|misc|managers?|handlers?", re.IGNORECASE)


# ---- reading ---------------------------------------------------------------------------------------------------------


def files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


every_file = pytest.mark.parametrize("path", files(), ids=relative)


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def module_of(path: Path) -> str:
    parts = ["heedful", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(path: Path) -> str:
    """The name in LAYERS that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Full names of all that a file imports, also inside functions: `heedful.model.masks`, `torch.nn`."""
    modules = {module_of(other) for other in files()}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, f"{relative(path)}:{node.lineno} has a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if full in modules or node.module == "heedful" else node.module), node.lineno


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


@functools.cache
def code_lines(path: Path) -> frozenset[int]:
    """Numbers of the lines that hold code: no blank lines, comments or docstrings."""
    lines: set[int] = set()
    quiet = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in quiet:
                lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(lines)


def dotted_name(node: ast.expr) -> str:
    """`torch.load` of such an expression; empty when it is anything but names and dots."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted_name(node.value)):
        return f"{before}.{node.attr}"
    return ""


# ---- layers ----------------------------------------------------------------------------------------------------------


def test_every_file_has_its_layer() -> None:
    known = {name for line in LAYERS for name in line}
    assert {part_of(path) for path in files()} == known


@every_file
def test_lower_never_imports_higher_and_equals_never_each_other(path: Path) -> None:
    level = {name: number for number, line in enumerate(LAYERS) for name in line}
    own = part_of(path)
    for imported, line in imports_of(path):
        if imported.split(".")[0] != "heedful" or own == "__init__" or imported == "heedful.__version__":
            continue
        other = imported.split(".")[1] if "." in imported else "__init__"
        assert other in level, f"{relative(path)}:{line} imports {imported}; write the module's full name"
        assert own == other or level[own] < level[other], f"{relative(path)}:{line} imports {imported}"


def test_no_file_imports_itself_round_a_corner() -> None:
    modules = {module_of(path) for path in files()}
    graph = {
        module_of(path): {name for name, _ in imports_of(path) if name in modules and name != "heedful"}
        for path in files()
        if path != PACKAGE / "__init__.py"
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError with the cycle in its message


@every_file
def test_imports_at_the_top_of_a_file_are_dependencies_or_of_the_train_extra(path: Path) -> None:
    """Optional and heavy packages are imported inside the function that needs them; kernels are written in Triton."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = [*project["dependencies"], *project["optional-dependencies"]["train"]]
    declared = {Requirement(text).name.lower() for text in installed} | {"yaml", "heedful"}
    declared |= {"triton"} if path.parent.name == "kernels" else set()  # comes with torch for GPUs; imported on demand
    at_top = [node for node in tree_of(path).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    for node in at_top:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in (name.split(".")[0] for name in names):
            assert name in sys.stdlib_module_names or name in declared, f"{relative(path)}:{node.lineno}: {name}"


def loaded_by(*arguments: str) -> set[str]:
    """Top-level names of all modules that this Python command imports."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    timed = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    said = "\n".join(line for line in done.stderr.splitlines() if line not in timed)
    assert done.returncode == 0, done.stdout + said
    return {line.split("|")[-1].strip().split(".")[0] for line in timed}


@pytest.mark.parametrize(
    "verb",
    [
        "",
        "train",
        "translate",
        "merge",
        "score",
        "evaluate",
        "prepare",
        "compare",
        "average",
        "export",
        "info",
        "paper",
    ],
)
def test_help_answers_without_heavy_packages(verb: str) -> None:
    loaded = loaded_by("-m", "heedful", *([verb] if verb else []), "--help")
    assert "heedful" in loaded
    assert not loaded & {"torch", "numpy", "sentencepiece", "sacrebleu", "tensorboard", "matplotlib"}


def test_the_package_imports_without_torch() -> None:
    loaded = loaded_by("-c", "import heedful; heedful.Config(); heedful.HeedfulError")
    assert not loaded & {"torch", "numpy"}


def test_text_and_scores_need_no_torch() -> None:
    modules = [module_of(path) for path in files() if part_of(path) in WITHOUT_TORCH]
    assert "torch" not in loaded_by("-c", f"import {', '.join(modules)}")


# ---- what may not be used --------------------------------------------------------------------------------------------


@every_file
def test_no_pickle_and_no_evaluation_of_text(path: Path) -> None:
    for imported, line in imports_of(path):
        assert imported.split(".")[0] not in FORBIDDEN_IMPORTS, f"{relative(path)}:{line} imports {imported}"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            place = f"{relative(path)}:{node.lineno}"
            assert dotted_name(node.func) not in FORBIDDEN_CALLS, f"{place} calls {dotted_name(node.func)}"
            assert not any(keyword.arg == "allow_pickle" for keyword in node.keywords), f"{place} speaks of pickle"
        if isinstance(node, ast.ImportFrom) and node.module in ("torch", "yaml"):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            assert not names & FORBIDDEN_CALLS, f"{relative(path)}:{node.lineno} imports {names & FORBIDDEN_CALLS}"


@every_file
def test_only_the_program_prints(path: Path) -> None:
    calls = [
        node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call) and dotted_name(node.func) == "print"
    ]
    assert not calls or part_of(path) == "cli", f"{relative(path)}:{calls[0].lineno} prints"


# ---- words -----------------------------------------------------------------------------------------------------------


def names_in(path: Path) -> Iterator[tuple[str, int]]:
    """Every name that a file gives to something."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


@every_file
def test_names_use_full_words(path: Path) -> None:
    for name, line in names_in(path):
        parts = {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
        assert not parts & FORBIDDEN_PARTS, f"{relative(path)}:{line} names something {name}"


@every_file
def test_every_file_and_class_has_a_home_with_a_meaning(path: Path) -> None:
    for part in path.relative_to(PACKAGE).with_suffix("").parts:
        assert not any(FORBIDDEN_HOMES.fullmatch(word) for word in part.split("_")), part
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ClassDef):
            words = re.findall(r"[A-Z][a-z]+", node.name)
            assert not any(FORBIDDEN_HOMES.fullmatch(word) for word in words), node.name


@every_file
def test_public_things_say_what_they_are(path: Path) -> None:
    tree = tree_of(path)
    assert ast.get_docstring(tree) or not tree.body, f"{relative(path)} has no docstring"
    public = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    for node in public:
        place = f"{relative(path)}:{node.lineno} {node.name}"
        assert node.name.startswith("_") or ast.get_docstring(node), f"{place} has no docstring"


@every_file
def test_lists_of_public_names_are_sorted_and_true(path: Path) -> None:
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign) and any(dotted_name(target) == "__all__" for target in node.targets):
            names = ast.literal_eval(node.value)
            assert names == sorted(set(names)), relative(path)
            module = __import__(module_of(path), fromlist=names)
            assert all(hasattr(module, name) for name in names), relative(path)


# ---- sizes -----------------------------------------------------------------------------------------------------------


@every_file
def test_functions_can_be_seen_whole(path: Path) -> None:
    for function in functions_of(path):
        length = len(code_lines(path) & set(range(function.lineno, (function.end_lineno or 0) + 1)))
        place = f"{relative(path)}:{function.lineno} {function.name}"
        assert length <= MAX_FUNCTION_LINES, f"{place} has {length} lines of code"


# ---- what stands beside the package ----------------------------------------------------------------------------------


def test_every_dependency_is_pinned_to_a_version_that_is_allowed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    asked = [Requirement(text) for text in (*project["dependencies"], *(text for extra in extras for text in extra))]
    asked = [requirement for requirement in asked if requirement.name != "heedful"]  # an extra that includes others
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pinned = {pin.name.lower().replace("_", "-"): str(pin.specifier).removeprefix("==") for pin in pins}
    assert all(str(pin.specifier).startswith("==") and "+" not in str(pin.specifier) for pin in pins)
    assert pinned["torch"] == "2.13.0"
    for requirement in asked:
        assert requirement.specifier.contains(pinned[requirement.name.lower()]), requirement
        assert not re.search(r"==|<|~=", str(requirement.specifier)), f"{requirement} is not an open lower bound"
