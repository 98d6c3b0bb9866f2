"""`heedful serve` beside LibreTranslate with the same model, single sentences of 1, 8 and 64 clients.

    python -m venv peer && peer/bin/pip install libretranslate spacy
    python benchmarks/speed/serving_peers.py TEXT peer > benchmarks/results/serving_peers_DATE_cpu.md

TEXT has one English sentence on each line; `peer` is the environment of LibreTranslate. The English and German model is
exported to CTranslate2 in int8 and packed as two packages of Argos Translate. Two things in them are ours:
- The model's tag of the target language is the first token of the source; config.json says so as the source's BOS.
- The sentence splitter MiniSBD is downloaded at its first use, so the packages contain spaCy's rule-based sentencizer,
  which needs no download (ARGOS_CHUNK_TYPE=SPACY).
Rounds are interleaved. Every answer is compared with what the same server answers to this sentence alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.common.run_metadata import run_metadata  # noqa: E402
from benchmarks.speed import serving_load  # noqa: E402

MODEL = "en-de-zh"
LANGUAGES = {"en": "English", "de": "German"}
TUNED = {"ARGOS_INTER_THREADS": "2", "ARGOS_INTRA_THREADS": "1"}
"""Two translations at a time with one thread each, instead of one at a time with all threads."""
SPLITTER = """
import sys, spacy
for folder in sys.argv[1:]:
    spacy.blank("xx").to_disk(folder)
"""


def pack_model(folder: Path, python: Path) -> None:
    """Write the packages of both directions, with their splitter, where Argos Translate looks for them."""
    exported = folder / "ctranslate2"
    export = ["export", "--to", "ctranslate2", "--quantization", "int8", "-m", MODEL, "-o", str(exported)]
    subprocess.run([sys.executable, "-m", "heedful", *export], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    config = json.loads((exported / "config.json").read_text())
    cache = folder / "cache" / "argos-translate" / "spacy"
    splitters = [cache]
    for source, target in (("en", "de"), ("de", "en")):
        package = folder / "share" / "argos-translate" / "packages" / f"heedful-{source}_{target}"
        (package / "model").mkdir(parents=True)
        for name in ("model.bin", "shared_vocabulary.json"):
            shutil.copy(exported / name, package / "model")
        tagged = {**config, "add_source_bos": True, "bos_token": f"<2{target}>"}
        (package / "model" / "config.json").write_text(json.dumps(tagged))
        shutil.copy(exported / "tokenizer.model", package / "sentencepiece.model")
        names = {"from_name": LANGUAGES[source], "to_name": LANGUAGES[target]}
        versions = {"package_version": "1.0", "argos_version": "1.9"}
        metadata = {**versions, "from_code": source, "to_code": target, **names}
        (package / "metadata.json").write_text(json.dumps(metadata))
        splitters.append(package / "spacy")
    cache.parent.mkdir(parents=True)
    subprocess.run([python, "-W", "ignore", "-c", SPLITTER, *map(str, splitters)], check=True)
    (cache / "senter").mkdir()
    (cache / "senter" / "model").touch()  # the file by which Argos Translate finds that nothing is to be downloaded


def libretranslate(folder: Path, python: Path, variables: dict[str, str]) -> Callable[..., Any]:
    """A context manager that starts LibreTranslate with these packages."""

    @contextmanager
    def start() -> Iterator[int]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        environment = {
            **os.environ,
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "share"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "ARGOS_CHUNK_TYPE": "SPACY",
            **variables,
        }
        script = python.parent / "libretranslate"
        options = ["--host", "127.0.0.1", "--port", str(port), "--load-only", "en,de", "--disable-web-ui"]
        process = subprocess.Popen(
            [python, "-W", "ignore", script, *options],
            env=environment,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until_it_answers(process, port)
            yield port
        finally:
            process.terminate()
            process.wait()

    return start


def wait_until_it_answers(process: subprocess.Popen[bytes], port: int) -> None:
    """Ask for the languages until the server answers."""
    for _ in range(120):
        if process.poll() is not None:
            raise RuntimeError(f"LibreTranslate ended with code {process.returncode}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/languages", timeout=5).read()
            return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError("LibreTranslate did not start within a minute")


def ratios(measured: dict[tuple[str, int], serving_load.Measured], peers: list[str]) -> list[str]:
    """How many times as many translations a second as the fastest other system, for each number of clients."""
    lines = []
    for clients in sorted({count for _, count in measured}):
        own = measured["heedful", clients].rates
        best = max(peers, key=lambda name: statistics.median(measured[name, clients].rates))
        pairs = [one / other for one, other in zip(own, measured[best, clients].rates, strict=True)]
        spread = f"{min(pairs):.1f} – {max(pairs):.1f}"
        lines.append(f"| {clients} | {statistics.median(pairs):.1f} ({spread}) | {best} |")
    return lines


def agreement(measured_texts: dict[str, list[str]]) -> str:
    """How many sentences all systems translate equally."""
    rows = list(zip(*measured_texts.values(), strict=True))
    return f"{sum(len(set(row)) == 1 for row in rows)} of {len(rows)}"


def main() -> None:
    """Measure and print the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("peer", type=Path, help="virtual environment with LibreTranslate and spaCy")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", nargs="*", type=int, default=[1, 8, 64])
    options = parser.parse_args()
    python = options.peer.absolute() / "bin" / "python"
    listing = [python, "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]
    packages = json.loads(subprocess.run(listing, capture_output=True, check=True).stdout)
    wanted = ("libretranslate", "argos-translate-lt", "ctranslate2", "spacy", "torch", "waitress")
    versions = ", ".join(f"{one['name']} {one['version']}" for one in packages if one["name"] in wanted)
    lines = options.text.read_text(encoding="utf-8").splitlines()
    sentences = [line.strip() for line in lines if line.strip()][: options.sentences]
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as folder:
        pack_model(Path(folder), python)
        systems = [serving_load.heedful_system("heedful", "-m", MODEL)]
        for name, variables in (("LibreTranslate", {}), ("LibreTranslate, 2 × 1 threads", TUNED)):
            start = libretranslate(Path(folder), python, variables)
            body, read = serving_load.libretranslate_body, serving_load.libretranslate_text
            systems.append(serving_load.System(name, start, "/translate", body, read))
        texts = {}
        for system in systems[:2]:
            with system.start() as port:
                texts[system.name] = serving_load.translate_alone(system, port, sentences)
        measured = serving_load.measure(systems, sentences, options.clients, options.rounds, options.seconds)
    load.append(os.getloadavg()[0])
    words = statistics.mean(len(sentence.split()) for sentence in sentences)
    print(f"# heedful serve beside LibreTranslate, {time.strftime('%Y-%m-%d')}\n")
    print(
        f"{len(sentences)} single sentences of {words:.0f} words on average, English to German, on loopback; "
        f"{options.rounds} interleaved rounds of {options.seconds:g} s; the same int8 weights, beam 4.\n"
    )
    print(serving_load.report(measured))
    print(
        "\n| clients | translations/s of heedful / the faster LibreTranslate, median (range) | which |\n|---:|---:|---|"
    )
    print("\n".join(ratios(measured, [system.name for system in systems[1:]])))
    print("\n*wrong* counts answers that are not the server's own translation of the sentence that was sent.")
    print(
        f"Both servers translate {agreement(texts)} sentences equally; their searches differ in the length penalty.\n"
    )
    print(f"The clients ran on the same cores. Load average of the machine: {load[0]:.1f}, {load[1]:.1f} at the end.\n")
    print(f"- LibreTranslate: {versions}; with spaCy's rule-based sentencizer in place of MiniSBD, a download")
    print(run_metadata(), end="")


if __name__ == "__main__":
    main()
