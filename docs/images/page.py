"""Take the screenshots of docs/see.md, docs/serve.md and the READMEs: python docs/images/page.py [--all FOLDER]

`--serve` takes only those of docs/serve.md. `--all` writes every view in both languages and themes, for a desktop and
a phone, into a folder, to look at them.
Needs Node.js, `npm ci` in web/ and Chromium.
"""

from __future__ import annotations

import argparse
import http.server
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from heedful.cli.see import VIEWS
from heedful.inspection.static_site import named_models, site_models, write_site

IMAGES = Path(__file__).parent / "page"
ROOT = Path(__file__).resolve().parents[2]
SENTENCE = {"text": "I would like a cup of coffee, please.", "to": "zh"}
CHINESE = {"text": "请给我一杯咖啡。", "to": "en"}
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
TRANSLATED = {
    "text": "Der Zug aus Hamburg hatte zwei Stunden Verspätung. Trotzdem kamen wir noch rechtzeitig an, weil die "
    "Sitzung später begann als geplant.\n\nAm Abend gingen wir in ein kleines Restaurant am Hafen.",
    "from": "",
    "to": "en",
}
SHOTS: dict[str, dict[str, str]] = {
    "decoding": SENTENCE | {"view": "decoding", "step": "4"},
    "attention": SENTENCE | {"view": "attention", "attention": "cross"},
    "head": SENTENCE | {"view": "head", "attention": "encoder", "layer": "0", "head": "0"},
    "beam": SENTENCE | {"view": "beam"},
    "what_if": SENTENCE
    | {
        "text": "Anna gave Tom the book that Peter had bought.",
        "view": "what_if",
        "change": "no_positions,encoder~no_positions,decoder",
    },
    "walk": SENTENCE | {"stop": "12", "view": "attention", "attention": "cross"},
}


class QuietServer(http.server.SimpleHTTPRequestHandler):
    """A plain file server."""

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass


def documentation_shots() -> list[dict[str, Any]]:
    """Six views in each language: light in English, dark in Chinese; the last one on a phone."""
    IMAGES.mkdir(exist_ok=True)
    shots = []
    for name, state in SHOTS.items():
        size = PHONE if name == "walk" else DESKTOP
        for language, theme, ending in (("en", "light", ".png"), ("zh", "dark", ".zh-CN.png")):
            address = state | {"language": language, "theme": theme}
            shots.append({"state": address, "file": str(IMAGES / f"{name}{ending}"), **size})
    return shots


def all_shots(folder: Path) -> list[dict[str, Any]]:
    """Every view in both languages and themes, at two widths."""
    folder.mkdir(parents=True, exist_ok=True)
    shots = []
    for view, language, theme, (width, size) in itertools.product(
        VIEWS, ("en", "zh"), ("light", "dark"), (("desktop", DESKTOP), ("phone", PHONE))
    ):
        state = (CHINESE if language == "zh" else SENTENCE) | {"view": view, "language": language, "theme": theme}
        file = folder / f"{view}-{width}-{language}-{theme}.png"
        shots.append({"state": state, "file": str(file), "fullPage": True, **size})
    return shots


def translation_shots() -> list[dict[str, Any]]:
    """The translation page with the alternatives of a word, in each language."""
    shown = {"width": 1280, "height": 680, "ready": "[data-done=true]", "clicked": ".alternatives[data-ready=true]"}
    return [
        {
            "state": TRANSLATED | {"language": language, "theme": theme},
            "file": str(IMAGES / f"translate{ending}"),
            "click": ".target .word:text-is('sitting')",
            **shown,
        }
        for language, theme, ending in (("en", "light", ".png"), ("zh", "dark", ".zh-CN.png"))
    ]


def take(shots: list[dict[str, Any]], address: str) -> None:
    """Take screenshots of a page."""
    browser = shutil.which("chromium")
    if browser is None:
        sys.exit("page.py: Chromium is missing; install the package chromium.")
    for shot in shots:
        shot["url"] = f"{address}#{urlencode(shot.pop('state'))}"
    request = json.dumps({"executablePath": browser, "shots": shots})
    subprocess.run(["node", str(ROOT / "web" / "screenshots.mjs")], input=request, text=True, check=True)


def take_see(shots: list[dict[str, Any]]) -> None:
    """Screenshots of the page of `heedful see`, from a temporary folder."""
    with tempfile.TemporaryDirectory() as root:
        write_site(site_models(named_models([])), Path(root, "site"))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietServer, directory=root))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        take(shots, f"http://127.0.0.1:{server.server_port}/site/")
        server.shutdown()


def take_serve(shots: list[dict[str, Any]]) -> None:
    """Screenshots of the page of `heedful serve`."""
    command = [sys.executable, "-m", "heedful", "serve", "--port", "0", "--workers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        found = None
        while found is None:
            found = re.search(
                r"http://[\d.]+:\d+/", server.stdout.readline() or sys.exit("page.py: heedful serve ended.")
            )
        take(shots, found[0])
        server.terminate()


def main() -> None:
    """Take the screenshots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", metavar="FOLDER", type=Path, help="every view, into this folder")
    parser.add_argument("--serve", action="store_true", help="only the page of heedful serve")
    arguments = parser.parse_args()
    if not arguments.serve:
        take_see(documentation_shots() if arguments.all is None else all_shots(arguments.all))
    if arguments.all is None:
        take_serve(translation_shots())


if __name__ == "__main__":
    main()
