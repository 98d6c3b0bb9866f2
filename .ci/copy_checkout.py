"""Copy the tracked and unignored files of this checkout, without build outputs: FOLDER"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
for name in filter(None, names):
    if (ROOT / name).is_file():  # a tracked file may have been deleted
        to = Path(sys.argv[1], name)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to)
