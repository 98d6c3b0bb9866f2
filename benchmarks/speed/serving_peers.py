"""`heedful serve` beside LibreTranslate with the same model, single sentences of 1, 8 and 64 clients.

    python -m venv peer && peer/bin/pip install libretranslate spacy
    python benchmarks/speed/serving_peers.py TEXT peer > benchmarks/results/serving_peers_DATE_cpu.md

TEXT has one English sentence on each line; `peer` is the environment of LibreTranslate. The English and German model is
exported to CTranslate2 in int8 and packed as two packages of Argos Translate. Two things in them are ours:
- The model's tag of the target language is the first token of the source; config.json says so as the source's BOS.
- The sentence splitter MiniSBD is downloaded at its first use, so the packages contain spaCy's rule-based sentencizer,
  which needs no download (ARGOS_CHUNK_TYPE=SPACY).
All servers run at the same time, one of them working: rounds are interleaved. Every answer is compared with what the
same server answers to this sentence alone. The processor time of a server's processes for one translation depends less
than the rates on what else the machine does.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
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


def processor_seconds(process: int) -> float:
    """The processor time of a process and of all that it started."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    used = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    for thread in Path(f"/proc/{process}/task").iterdir():
        used += sum(processor_seconds(int(child)) for child in (thread / "children").read_text().split())
    return used


def children() -> set[int]:
    """The processes that this one has started and that have not ended."""
    found = (task / "children" for task in Path("/proc/self/task").iterdir())
    return {int(child) for file in found for child in file.read_text().split()}


@dataclass
class Server:
    """A running server, with the results for each number of clients."""

    system: serving_load.System
    port: int
    process: int
    expected: list[str]
    measured: dict[int, serving_load.Measured] = field(default_factory=dict)
    used: dict[int, float] = field(default_factory=dict)
    """Processor seconds."""

    def run(self, sentences: Sequence[str], clients: int, seconds: float) -> None:
        """One round with some clients."""
        before = processor_seconds(self.process)
        found = serving_load.send(self.system, self.port, sentences, clients, seconds)
        self.used[clients] = self.used.get(clients, 0.0) + processor_seconds(self.process) - before
        one = self.measured.setdefault(clients, serving_load.Measured())
        one.add(found, self.expected, self.system.read)
        print(f"{self.system.name}, {clients} clients: {one.rates[-1]:.0f}/s", file=sys.stderr)

    def cost(self, clients: int) -> float:
        """Processor milliseconds of one translation."""
        return 1000 * self.used[clients] / len(self.measured[clients].milliseconds)


@contextmanager
def running(systems: Sequence[serving_load.System], sentences: Sequence[str]) -> Iterator[list[Server]]:
    """All systems, warm."""
    servers: list[Server] = []
    with ExitStack() as stack:
        for system in systems:
            before = children()
            port = stack.enter_context(system.start())
            (process,) = children() - before
            expected = serving_load.translate_alone(system, port, sentences)
            serving_load.send(system, port, sentences, 8, serving_load.WARM_UP)
            servers.append(Server(system, port, process, expected))
        yield servers


def compared(own: Server, peer: Server, clients: int) -> str:
    """A row: how many times as many translations a second as another, and in how much less processor time."""
    pairs = zip(own.measured[clients].rates, peer.measured[clients].rates, strict=True)
    times = [one / other for one, other in pairs]
    spread = f"{statistics.median(times):.1f} ({min(times):.1f} – {max(times):.1f})"
    costs = f"{own.cost(clients):.1f} | {peer.cost(clients):.1f} | {peer.cost(clients) / own.cost(clients):.1f}"
    return f"| {peer.system.name} | {clients} | {spread} | {costs} |"


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
        with running(systems, sentences) as servers:
            for _ in range(options.rounds):
                for clients in options.clients:
                    for server in servers:
                        server.run(sentences, clients, options.seconds)
    load.append(os.getloadavg()[0])
    own, *peers = servers
    words = statistics.mean(len(sentence.split()) for sentence in sentences)
    print(f"# heedful serve beside LibreTranslate, {time.strftime('%Y-%m-%d')}\n")
    print(
        f"{len(sentences)} single sentences of {words:.0f} words on average, English to German, on loopback; "
        f"{options.rounds} interleaved rounds of {options.seconds:g} s; the same int8 weights, beam 4.\n"
    )
    rows = {(one.system.name, clients): found for one in servers for clients, found in one.measured.items()}
    print(serving_load.report(rows))
    print(f"\nheedful compared with each, {options.rounds} pairs of rounds:\n")
    print(
        "| compared with | clients | translations/s, times, median (range) | processor ms | its processor ms | times |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    print("\n".join(compared(own, peer, clients) for clients in options.clients for peer in peers))
    print("\n*wrong* counts answers that are not the server's own translation of the sentence that was sent.")
    equal = sum(one == other for one, other in zip(own.expected, peers[0].expected, strict=True))
    print(f"heedful and LibreTranslate translate {equal} of {len(sentences)} sentences equally; their searches")
    print("differ in the length penalty.\n")
    print(f"The clients ran on the same cores. Load average of the machine: {load[0]:.1f}, {load[1]:.1f} at the end.\n")
    print(f"- LibreTranslate: {versions}; with spaCy's rule-based sentencizer in place of MiniSBD, a download")
    print(run_metadata(), end="")


if __name__ == "__main__":
    main()
