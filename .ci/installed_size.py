"""Print the size of the packages of an environment in MB, without heedful, pip and setuptools.

    ENVIRONMENT/bin/python .ci/installed_size.py                           # the number alone
    ENVIRONMENT/bin/python .ci/installed_size.py --limit 30 --minus 0.0    # a sentence; fails above 30 MB

The files recorded by the installer are counted, as stored on disk and without `__pycache__`.
"""

import argparse
import sys
from importlib.metadata import distributions

NOT_COUNTED = {"heedful", "pip", "setuptools", "wheel"}


def main() -> None:
    """Print the size; exit with an error if it exceeds the limit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float)
    parser.add_argument("--minus", type=float, default=0.0)
    given = parser.parse_args()
    sizes = {}
    for one in distributions():
        if one.name.lower() not in NOT_COUNTED:
            paths = [path.locate() for path in one.files or [] if "__pycache__" not in path.parts]
            sizes[f"{one.name} {one.version}"] = sum(path.stat().st_size for path in paths if path.is_file()) / 1e6
    total = sum(sizes.values()) - given.minus
    if given.limit is None:
        sys.stdout.write(f"{total:.1f}\n")
        return
    listed = ", ".join(f"{name}: {size:.1f}" for name, size in sorted(sizes.items(), key=lambda item: -item[1]))
    summary = f"Dependencies of heedful take {total:.1f} MB installed ({listed})."
    if total > given.limit:
        sys.exit(f"{summary} At most {given.limit:g} are allowed.")
    sys.stdout.write(f"{summary}\n")


if __name__ == "__main__":
    main()
