"""The engine in Chromium beside the native engine: time to the first translation, translations and traces.

    python benchmarks/speed/browser_engine.py > benchmarks/results/browser_engine_DATE_cpu.md

Exports the bundled model, serves it on loopback, and opens it in headless Chromium, first without and then with cached
weights. Then it translates sentences of about 20 tokens, greedily, with the model's beam, and greedily with a trace of
all tensors; and it traces the cross-attention of 512 tokens. WebAssembly runs with a thread per core and with one, and
with relaxed SIMD and without. The native engine does the same with the portable kernels on one thread and with its
fastest kernels on all cores. Needs Node.js, `npm ci` in web/, and Chromium.
"""

from __future__ import annotations

import argparse
import http.server
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.common.run_metadata import run_metadata  # noqa: E402
from heedful.config import DecodingConfig  # noqa: E402
from heedful.cpu_count import usable_cores  # noqa: E402
from heedful.decoding.translator import Translator  # noqa: E402
from heedful.interop.web import export_web  # noqa: E402
from heedful.model_dir.registry import default_model  # noqa: E402
from heedful.native import NativeEngine  # noqa: E402
from heedful.native.convert import native_weights  # noqa: E402

SENTENCES = [
    ("The children were playing in the garden when it suddenly began to rain, so they ran into the house.", "de"),
    ("If you want to learn a language well, you should read a little and speak a little every single day.", "zh"),
    ("Der Zug nach Berlin fährt heute wegen des starken Schneefalls leider mit einer Stunde Verspätung ab.", "en"),
]
LONG = [1000 + (index * 7919) % 20000 for index in range(512)]
CROSS = ["*.cross_attention.weights"]
KINDS = ("greedy", "beam", "trace", "long")
VARIANTS = [
    {"threads": threads, "relaxed": relaxed}
    for threads in dict.fromkeys((min(usable_cores(), 4), 1))
    for relaxed in (True, False)
]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """A file server that prints nothing."""

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass

    def end_headers(self) -> None:
        """Isolate the page from other origins, which allows threads."""
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()


def measure_browser(rounds: int) -> dict[str, Any]:
    """The times in Chromium, in milliseconds."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("browser_engine.py: Chromium is not installed.")
    with tempfile.TemporaryDirectory() as folder:
        site = export_web(default_model(), Path(folder, "site"))
        shutil.copyfile(ROOT / "heedful" / "web" / "engine_threads.wasm", site / "engine_threads.wasm")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(site)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        request = {
            "address": f"http://127.0.0.1:{server.server_port}/example.css",  # a page that loads nothing by itself
            "executablePath": browser,
            "variants": VARIANTS,
            "requests": SENTENCES,
            "rounds": rounds,
        }
        script = ROOT / "web" / "tests" / "measure_page.mjs"
        done = subprocess.run(
            ["node", str(script)], input=json.dumps(request), capture_output=True, text=True, check=False
        )
        server.shutdown()
        server.server_close()
        if done.returncode:
            sys.exit(f"browser_engine.py: {done.stderr}")
        return dict(json.loads(done.stdout))


def measure_native(rounds: int, *, kernels: str | None, num_threads: int | None) -> list[dict[str, float]]:
    """The same with the native engine, in milliseconds."""
    translator = Translator.load(default_model(), engine="native")
    engine = NativeEngine(native_weights(default_model()), kernels=kernels, num_threads=num_threads)
    tokenizer, special, config = translator.tokenizer, translator.special, translator.config

    def search(text: str, language: str, settings: DecodingConfig) -> list[int]:
        source = tokenizer.encode_source(text, language)
        [[best, *_]] = engine.translate_ids([source], settings, special, max_lengths=[len(source) + 50])
        return [token for token in best.tokens if token != special.eos_id]

    def trace(text: str, language: str) -> None:
        target = search(text, language, DecodingConfig(method="greedy"))
        engine.trace_ids(tokenizer.encode_source(text, language), [special.bos_id, *target], special)

    def milliseconds(call: Callable[[], object]) -> float:
        began = time.perf_counter()
        call()
        return 1000 * (time.perf_counter() - began)

    found = []
    for _ in range(rounds):
        for text, language in SENTENCES:
            long = milliseconds(lambda: engine.trace_ids(LONG, [special.bos_id, *LONG[1:]], special, wanted=CROSS))
            greedy = milliseconds(lambda: search(text, language, DecodingConfig(method="greedy")))  # noqa: B023
            beam = milliseconds(lambda: search(text, language, config))  # noqa: B023
            traced = milliseconds(lambda: trace(text, language))  # noqa: B023
            found.append({"greedy": greedy, "beam": beam, "trace": traced, "long": long})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    portable = measure_native(rounds, kernels="portable", num_threads=1)
    browser = measure_browser(rounds)
    fastest = measure_native(rounds, kernels=None, num_threads=None)
    print("# The engine in the browser\n")
    print("Bundled model, milliseconds of a sentence of about 20 tokens: median, and in brackets the least. The trace")
    print("records all tensors and includes the translation; that of 512 tokens records the cross-attention.\n")
    print("| | greedy | beam | greedy and trace | trace of 512 tokens |\n|---|---:|---:|---:|---:|")
    assert [{name: one[name] for name in ("threads", "relaxed")} for one in browser["measured"]] == VARIANTS
    for name, rows in (
        *(
            (f"WebAssembly, threads: {one['threads']}{', relaxed SIMD' * one['relaxed']}", one["found"])
            for one in browser["measured"]
        ),
        ("native, portable kernels, one thread", portable),
        ("native, fastest kernels, all cores", fastest),
    ):
        columns = [[row[kind] for row in rows] for kind in KINDS]
        cells = [f"{statistics.median(column):.0f} ({min(column):.0f})" for column in columns]
        print(f"| {name} | {' | '.join(cells)} |")
    cold, cached = browser["cold"], browser["cached"]
    print(f"\nFrom opening the page to the first translation: {cold:.0f} ms, with cached weights {cached:.0f} ms.\n")
    print(f"- browser: Chromium {browser['version']}, headless; files served from loopback")
    print(run_metadata(), end="")


if __name__ == "__main__":
    main()
