"""Print the first commands of a Markdown file: its first ```bash block, and those on the sample corpus.

python .ci/first_commands.py README.md            # all of them
python .ci/first_commands.py README.md --first    # the first block
python .ci/first_commands.py README.md --others   # the others
"""

import re
import sys
from pathlib import Path

path, choice = Path(sys.argv[1]), (sys.argv[2:] or ["--all"])[0]
blocks = re.findall(r"^```(?:bash|sh|shell)\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
if not blocks:
    sys.exit(f"{path}: there is no ```bash block.")
first, *others = blocks
on_samples = [block for block in others if "examples/data/" in block]
chosen = {"--all": [first, *on_samples], "--first": [first], "--others": on_samples}[choice]
sys.stdout.write(re.sub(r"^\$ ", "", "".join(chosen), flags=re.MULTILINE))
