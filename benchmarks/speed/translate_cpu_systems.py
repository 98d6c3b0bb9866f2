"""One system that translates on a CPU in a separate process, controlled by `translate_cpu.py`.

    python benchmarks/speed/translate_cpu_systems.py SYSTEM FOLDER THREADS

It loads its model from FOLDER, translates one sentence and reports it; then, for each line on its input such as
`{"batch": 32, "beam": 4, "warm": true, "seconds": 0.5}`, it translates the first 32 sentences repeatedly for that
time, after one warm-up call, and answers with the seconds of each call and its peak memory so far.

Every system translates each sentence into exactly TARGET tokens, from ids to ids without tokenization (except Bergamot,
which takes only text, here words of one token each). Only the packages of the system are imported.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BOS, EOS, PAD, UNKNOWN = 2, 3, 0, 1
FIRST = 4
"""The first id of a word."""
SOURCE, TARGET = 28, 32
Sources = list[list[int]]
Run = Callable[[Sources, int], int]
"""(sources, beam size) -> number of target tokens."""


class Task(NamedTuple):
    """Number of sentences per call, and beam size."""

    batch: int
    beam: int

    def __str__(self) -> str:
        return f"batch {self.batch}, {'greedy' if self.beam == 1 else f'beam {self.beam}'}"


class Peer(NamedTuple):
    """A system: its name, family, and the function that loads it."""

    title: str
    family: str
    """The fastest system of a family counts in the final comparison."""
    load: Callable[[Path, int], Run]
    """(folder of the models, threads) -> translate function."""
    package: str | None = None
    """Required packages."""
    most_beams: int = 16
    listed: bool = False
    """Whether it uses a shortlist; it is then compared with ours with a shortlist."""


# ---------------------------------------------------------------------- Heedful


def settings(beam: int, **more: Any) -> Any:
    """Exactly TARGET tokens, including the end token."""
    from heedful.config import DecodingConfig

    return DecodingConfig(
        method="greedy" if beam == 1 else "beam",
        beam_size=beam,
        min_length=TARGET - 1,
        tokens_per_batch=1 << 20,
        **more,
    )


def special() -> Any:
    from heedful.search_types import SpecialTokens

    return SpecialTokens(bos_id=BOS, eos_id=EOS, pad_id=PAD, forbidden=(UNKNOWN,))


def native(*, shortlist: bool) -> Callable[[Path, int], Run]:
    """Our native CPU engine; imports no torch."""

    def load(folder: Path, threads: int) -> Run:
        from heedful.native import NativeEngine

        engine = NativeEngine.load(folder / ("listed" if shortlist else "model"), num_threads=threads)
        tokens = special()

        def run(sources: Sources, beam: int) -> int:
            limits = [TARGET - 1] * len(sources)
            found = engine.translate_ids(sources, settings(beam), tokens, max_lengths=limits)
            return sum(len(hypotheses[0].tokens) for hypotheses in found)

        return run

    return load


def readable(*, fast: bool) -> Callable[[Path, int], Run]:
    """Our torch engine; slow on CPUs because single sentences are computed in batches of sixteen."""

    def load(folder: Path, threads: int) -> Run:
        from heedful.decoding.engines.torch_engine import TorchEngine
        from heedful.model_dir import load_model
        from heedful.search_types import DecodeRequest

        engine = TorchEngine(load_model(folder / "model").model, special(), device="cpu")

        def run(sources: Sources, beam: int) -> int:
            requests = [
                DecodeRequest(tuple(source), (), str(number), TARGET - 1) for number, source in enumerate(sources)
            ]
            results = engine.decode(
                requests, settings(beam, batch_invariant=not fast), align=False, constraint_factory=None
            )
            return sum(len(result.hypotheses[0].tokens) for result in results.values())

        return run

    return load


# ---------------------------------------------------------------------- peers


def ctranslate2(quantization: str, *, apart: bool, use_map: bool) -> Callable[[Path, int], Run]:
    """CTranslate2; if `apart`, workers with one thread each share a call's sentences, else one worker has all threads.

    The end token is forbidden before min_decoding_length and not counted by max_decoding_length: the length is exact.
    """

    def load(folder: Path, threads: int) -> Run:
        import ctranslate2 as package

        directory = folder / f"ctranslate2-{quantization}"
        workers, each = (threads, 1) if apart else (1, threads)
        most = 16 if use_map else 64  # fastest of 16 to 256; small batches have fewer candidates
        translator = package.Translator(
            str(directory), device="cpu", compute_type=quantization, inter_threads=workers, intra_threads=each
        )
        vocabulary = json.loads((directory / "shared_vocabulary.json").read_text(encoding="utf-8"))

        def run(sources: Sources, beam: int) -> int:
            found = translator.translate_batch(
                [[vocabulary[token] for token in source[:-1]] for source in sources],
                beam_size=beam,
                max_batch_size=min(most, max(1, len(sources) // workers)),
                min_decoding_length=TARGET,
                max_decoding_length=TARGET,
                return_scores=beam > 1,
                use_vmap=use_map,
            )
            return sum(len(result.hypotheses[0]) for result in found)

        return run

    return load


def generating(model: Any) -> Run:
    """Hugging Face's `generate`, for its own models and those of OpenVINO."""
    import torch

    model.generation_config.forced_eos_token_id = None

    @torch.inference_mode()
    def run(sources: Sources, beam: int) -> int:
        ids = torch.tensor(sources)
        found = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            num_beams=beam,
            do_sample=False,
            min_new_tokens=TARGET,
            max_new_tokens=TARGET,
            eos_token_id=EOS,
        )
        return sum(len(row) - 1 for row in found.tolist())

    return run


def marian(folder: Path, threads: int) -> Run:
    """Hugging Face Marian with torch's fused attention."""
    from transformers import MarianMTModel

    return generating(MarianMTModel.from_pretrained(folder / "marian", attn_implementation="sdpa").eval())


def openvino(quantization: str) -> Callable[[Path, int], Run]:
    """Marian by OpenVINO's runtime, between its products in float32.

    In bfloat16, its default where there is AMX, version 2026.4 ended with an illegal instruction on such a machine.
    """

    def load(folder: Path, threads: int) -> Run:
        from optimum.intel import OVModelForSeq2SeqLM

        wanted = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        return generating(OVModelForSeq2SeqLM.from_pretrained(folder / f"openvino-{quantization}", ov_config=wanted))

    return load


def word(number: int) -> str:
    """A four-letter word for each number below 26⁴."""
    return "".join(chr(ord("a") + number // 26**digit % 26) for digit in range(4))


def bergamot(folder: Path, threads: int) -> Run:
    """Bergamot in int8 with one worker per thread; uses only its compiled module, since the rest downloads models."""
    from importlib.util import module_from_spec, spec_from_file_location

    package = find_spec("bergamot")
    assert package is not None and package.submodule_search_locations
    compiled = next(Path(package.submodule_search_locations[0]).glob("_bergamot*.so"))
    spec = spec_from_file_location("_bergamot", compiled)
    assert spec is not None and spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    service = module.Service(module.ServiceConfig(numWorkers=threads, cacheSize=0, logLevel="off"))
    plain = module.ResponseOptions(qualityScores=False, alignment=False, HTML=False, sentenceMappings=False)
    models: dict[int, Any] = {}

    def run(sources: Sources, beam: int) -> int:
        texts = [" ".join(word(token - FIRST) for token in source[:-1]) for source in sources]
        if beam not in models:
            models[beam] = service.modelFromConfigPath(str(folder / "bergamot" / f"beam-{beam}.yml"))
            if len(models) > 1:  # every worker loads the model on first use
                service.translate(models[beam], module.VectorString(texts * 32), plain)
        found = service.translate(models[beam], module.VectorString(texts), plain)
        return sum(len(response.target.text.split()) for response in found)

    return run


def naive(folder: Path, threads: int) -> Run:
    """`nn.Transformer` as in tutorials: greedy search that recomputes the whole target for every token."""
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_model

    from benchmarks.speed.train_speed import TorchTransformer
    from heedful.config_loading import build_config

    with torch.device("meta"):
        model = TorchTransformer(build_config(json.loads((folder / "config.json").read_text(encoding="utf-8"))))
    model = model.to_empty(device="cpu").eval()
    load_model(model, folder / "torch.safetensors")

    @torch.inference_mode()
    def run(sources: Sources, beam: int) -> int:
        memory = model.transformer.encoder(model.embed(torch.tensor(sources)))
        tokens = torch.full((len(sources), 1), BOS)
        for _ in range(TARGET):
            causal = torch.ones(tokens.shape[1], tokens.shape[1]).triu(1).bool()
            x = model.transformer.decoder(model.embed(tokens), memory, tgt_mask=causal)
            newest = F.linear(x[:, -1], model.table.weight).argmax(dim=1, keepdim=True)
            tokens = torch.cat([tokens, newest], dim=1)
        return sum(len(row) - 1 for row in tokens.tolist())

    return run


# ---------------------------------------------------------------------- all systems


def all_ctranslate2(threads: int) -> dict[str, Peer]:
    """Both precisions, thread layouts, and with and without the vocabulary map."""
    found = {}
    for quantization in ("int8", "float32"):
        for apart in (True, False):
            for use_map in (False, True):
                layout = f"{threads} × 1" if apart else f"1 × {threads}"
                name = f"ctranslate2-{quantization}-{'apart' if apart else 'together'}{'-map' if use_map else ''}"
                title = f"CTranslate2 {quantization}, {layout} threads{', map' if use_map else ''}"
                family = f"CTranslate2 {quantization}{', map' if use_map else ''}"
                load = ctranslate2(quantization, apart=apart, use_map=use_map)
                found[name] = Peer(title, family, load, "ctranslate2", listed=use_map)
    return found


def all_peers(threads: int) -> dict[str, Peer]:
    """All systems by name, ours first."""
    return {
        "native": Peer("Heedful native int8", "Heedful native", native(shortlist=False)),
        "native-shortlist": Peer(
            "Heedful native int8, shortlist", "Heedful native, shortlist", native(shortlist=True), listed=True
        ),
        **all_ctranslate2(threads),
        "openvino-int8": Peer("OpenVINO int8 weights", "OpenVINO int8", openvino("int8"), "optimum.intel"),
        "openvino-float32": Peer("OpenVINO float32", "OpenVINO float32", openvino("float32"), "optimum.intel"),
        "bergamot": Peer(f"Bergamot int8, {threads} workers", "Bergamot", bergamot, "bergamot"),
        "readable": Peer("Heedful torch float32", "Heedful torch", readable(fast=False)),
        "readable-fast": Peer("Heedful torch float32, --no-batch-invariant", "Heedful torch", readable(fast=True)),
        "marian": Peer("Hugging Face Marian float32", "Hugging Face Marian", marian, "transformers"),
        "naive": Peer("nn.Transformer loop float32", "nn.Transformer loop", naive, most_beams=1),
    }


def installed(peer: Peer) -> bool:
    """Whether the packages of a system are installed."""
    try:
        return peer.package is None or find_spec(peer.package) is not None
    except ModuleNotFoundError:  # a submodule of a missing package
        return False


# ---------------------------------------------------------------------- the process


def timed(run: Run, sources: Sources, beam: int) -> float:
    """Seconds of one call, which must produce all tokens."""
    start = time.perf_counter()
    made = run(sources, beam)
    spent = time.perf_counter() - start
    if made != len(sources) * TARGET:
        raise ValueError(f"{made} tokens instead of {len(sources) * TARGET}")
    return spent


def turn(run: Run, sources: Sources, asked: dict[str, Any]) -> list[float]:
    """As many calls as fit into the given time, at least one."""
    if asked["warm"]:
        run(sources, asked["beam"])
    end = time.perf_counter() + asked["seconds"]
    spent = [timed(run, sources, asked["beam"])]
    while time.perf_counter() < end:
        spent.append(timed(run, sources, asked["beam"]))
    return spent


def most_memory() -> int:
    """Peak memory of this process in bytes, mapped files included; `ru_maxrss` would include the parent's."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main() -> None:
    name, folder, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    sys.path.insert(0, str(ROOT))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    sources: Sources = json.loads((folder / "sources.json").read_text(encoding="utf-8"))
    run = all_peers(threads)[name].load(folder, threads)
    timed(run, sources[:1], 1)
    answers.write("translated\n")
    answers.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            found: dict[str, Any] = {"seconds": turn(run, sources[: asked["batch"]], asked)}
        except Exception as error:  # a system that fails must not stop the others
            found = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        found["memory"] = most_memory()
        answers.write(json.dumps(found) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
