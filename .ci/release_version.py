"""Check that a version is ready for release, and print its section of the changelog.

    python .ci/release_version.py 0.2.0

The package, CITATION.cff and both READMEs must name this version, and its section in CHANGELOG.md must have a date.
Needs nothing but Python.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Print the release notes, or exit with an error."""
    if len(sys.argv) != 2:
        sys.exit("usage: python .ci/release_version.py VERSION")
    version = sys.argv[1]
    named = {
        "heedful/__init__.py": r'^__version__ = "(.+)"$',
        "CITATION.cff": r"^version: (.+)$",
        "README.md": r"^  version = \{(.+)\}$",
        "README.zh-CN.md": r"^  version = \{(.+)\}$",
    }
    problems = []
    for name, pattern in named.items():
        found = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        if found is None or found[1] != version:
            problems.append(f"{name} has the version {found[1] if found else 'nowhere'}, not {version}")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(
        rf"^## {re.escape(version)} \(([^)\n]+)\)\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if section is None:
        problems.append(f"CHANGELOG.md has no section '## {version} (DATE)'")
    elif not re.fullmatch(r"\d{4}-\d{2}-\d{2}", section[1]):
        problems.append(f"CHANGELOG.md: the date of {version} is '{section[1]}', not YYYY-MM-DD")
    if problems or section is None:
        sys.exit("\n".join(problems))
    sys.stdout.write(f"{section[2].strip()}\n")


if __name__ == "__main__":
    main()
