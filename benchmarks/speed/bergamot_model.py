"""A model for Bergamot (Marian for browsers): weights with Marian's names, and a vocabulary of whole words.

The weights are random, in the shape of a configuration. Bergamot has no minimum length, so a bias prevents the end
token and the unknown token; its maximum length then ends every translation at TARGET tokens. The activation scales,
which published Bergamot models contain for speed, are invented: they change the values, not the amount of work. The
packed format needs a program that the package lacks, so the weights are float32 on disk and every worker converts a
copy to int8; with a packed file it would start faster and use less memory.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.translate_cpu_systems import SOURCE, TARGET, word
from heedful.config import Config, ModelConfig

FLAGS_OFF = (
    "layer-normalization right-left skip tied-embeddings tied-embeddings-src transformer-aan-nogate "
    "transformer-depth-scaling transformer-no-affine transformer-no-bias transformer-no-projection "
    "transformer-output-omit-bias transformer-pool transformer-rnn-projection transformer-train-position-embeddings ulr"
).split()
RUN = """\
models: [{directory}/model.npz]
vocabs: [{directory}/vocabulary.spm, {directory}/vocabulary.spm]
beam-size: {beam}
normalize: 1.0
word-penalty: 0
max-length-break: 128
max-length-factor: {factor}
mini-batch-words: {words}
workspace: 128
skip-cost: true
cpu-threads: 0
quiet: true
quiet-translation: true
gemm-precision: int8shiftAlphaAll
"""


def make_bergamot(directory: Path, config: Config) -> None:
    """Write a folder with the model, its vocabulary, and a settings file for each beam size."""
    directory.mkdir()
    make_vocabulary(directory / "vocabulary.spm", config.model.source_vocab_size)
    arrays = random_arrays(config.model)
    scales = {f"{name}_QuantMultA": np.full((1, 1), 127 / 8) for name in arrays if name == "Wemb" or is_matrix(name)}
    summary = np.frombuffer(shape_of(config.model).encode() + b"\0", dtype=np.int8)
    floats = {name: array.astype(np.float32) for name, array in (arrays | scales).items()}
    np.savez(directory / "model.npz", **{"special:model.yml": summary, **floats})  # type: ignore[arg-type]
    for beam in (1, 4):
        factor = (TARGET - 0.5) / SOURCE
        text = RUN.format(directory=directory.resolve(), beam=beam, factor=factor, words=16 * SOURCE)
        (directory / f"beam-{beam}.yml").write_text(text, encoding="utf-8")


def make_vocabulary(path: Path, size: int) -> None:
    """A tokenizer of whole words; the end token is 0 and the unknown token 1, as in Marian."""
    import sentencepiece

    words = [word(number) for number in range(size - 2)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "words.txt").write_text("\n".join(words), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=f"{folder}/words.txt",
            model_prefix=f"{folder}/words",
            vocab_size=size,
            model_type="word",
            eos_id=0,
            unk_id=1,
            bos_id=-1,
            pad_id=-1,
            minloglevel=2,
        )
        path.write_bytes((Path(folder) / "words.model").read_bytes())


def is_matrix(name: str) -> bool:
    return name.split("_")[-1] in {"Wq", "Wk", "Wv", "Wo", "W1", "W2"}


def random_arrays(model: ModelConfig) -> dict[str, np.ndarray]:
    """Weights with Marian's names: attention, feed-forward layers, and the norm after each."""
    random, width = np.random.default_rng(1), model.d_model
    arrays: dict[str, Any] = {"Wemb": random.standard_normal((model.source_vocab_size, width)) / np.sqrt(width)}

    def add(prefix: str, pairs: dict[str, tuple[int, int]], norm: str) -> None:
        for name, shape in pairs.items():
            arrays[f"{prefix}_W{name}"] = random.standard_normal(shape) * np.sqrt(2 / sum(shape))
            arrays[f"{prefix}_b{name}"] = np.zeros((1, shape[1]))
        arrays[f"{prefix}_{norm}_ln_scale"] = np.ones((1, width))
        arrays[f"{prefix}_{norm}_ln_bias"] = np.zeros((1, width))

    for side, depth in (("encoder", model.num_encoder_layers), ("decoder", model.num_decoder_layers)):
        for layer in range(1, depth + 1):
            for kind in ("self", "context")[: 1 if side == "encoder" else 2]:
                add(f"{side}_l{layer}_{kind}", dict.fromkeys("qkvo", (width, width)), "Wo")
            add(f"{side}_l{layer}_ffn", {"1": (width, model.d_ff), "2": (model.d_ff, width)}, "ffn")
    arrays["decoder_ff_logit_out_b"] = np.where(np.arange(model.source_vocab_size) < 2, -1e4, 0)[None]
    return arrays


def shape_of(model: ModelConfig) -> str:
    """Marian's settings: a post-norm Transformer with sinusoidal positions and one embedding."""
    settings = {
        "type": "transformer",
        "version": "v1.10.0",
        "dim-emb": model.d_model,
        "dim-vocabs": [model.source_vocab_size] * 2,
        "lemma-dim-emb": 0,
        "enc-depth": model.num_encoder_layers,
        "dec-depth": model.num_decoder_layers,
        "enc-type": "bidirectional",
        "dec-cell": "gru",
        "input-types": [],
        "max-length": 100,
        "tied-embeddings-all": "true",
        "bert-train-type-embeddings": "true",
        "transformer-heads": model.num_heads,
        "transformer-dim-ffn": model.d_ff,
        "transformer-decoder-dim-ffn": model.d_ff,
        "transformer-ffn-depth": 2,
        "transformer-decoder-ffn-depth": 2,
        "transformer-ffn-activation": "relu",
        "transformer-decoder-autoreg": "self-attention",
        "transformer-dim-aan": 2048,
        "transformer-aan-depth": 2,
        "transformer-aan-activation": "swish",
        "transformer-guided-alignment-layer": "last",
        "transformer-preprocess": '""',
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": '""',
        "transformer-tied-layers": [],
        "unit": '""',
        **dict.fromkeys(FLAGS_OFF, "false"),
    }
    return "".join(f"{name}: {value}\n" for name, value in settings.items())
