"""Print the first ```bash block of a Markdown file, without the `$ ` of its lines: what CI runs as a new user would."""

import re
import sys
from pathlib import Path

path = Path(sys.argv[1])
block = re.search(r"^```(?:bash|sh|shell)\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
if block is None:
    sys.exit(f"{path}: there is no ```bash block.")
sys.stdout.write(re.sub(r"^\$ ", "", block[1], flags=re.MULTILINE))
