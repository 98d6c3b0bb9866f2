"""Print what a new user of a Markdown file would run first: its first ```bash block, and those on the sample corpus."""

import re
import sys
from pathlib import Path

path = Path(sys.argv[1])
blocks = re.findall(r"^```(?:bash|sh|shell)\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
if not blocks:
    sys.exit(f"{path}: there is no ```bash block.")
first, *others = blocks
chosen = [first, *(block for block in others if "examples/data/" in block)]
sys.stdout.write(re.sub(r"^\$ ", "", "".join(chosen), flags=re.MULTILINE))
