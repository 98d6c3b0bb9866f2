"""Language models in the training pipeline: their data, masks, perplexity, and the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.config import Config
from heedful.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from heedful.console import Console
    from heedful.data.masking import Masking
    from heedful.data.prepare import Prepared
    from heedful.training.loop import TrainingLoop
    from heedful.training.validation import PerplexityReport


def require_kind(config: Config, prepared: Prepared) -> None:
    """Raise `ConfigError` for prepared pairs and a language model, or for a prepared text and a translation model."""
    is_text = any(corpus.get("is_text") for corpus in prepared.report["corpora"])
    architecture = config.model.architecture
    if is_text != config.model.is_language_model:
        found, flags = ("one text", "--source and --target") if is_text else ("pairs", "--text")
        raise ConfigError(
            f"data.prepared: {prepared.directory} was prepared from {found}; architecture {architecture} needs data "
            f"prepared with {flags}."
        )


def make_masking(config: Config, prepared: Prepared) -> Masking | None:
    """Which tokens are hidden in the batches of a masked language model; None for other models."""
    from heedful.data.masking import Masking

    tokenizer = prepared.tokenizer
    if config.model.architecture != "encoder":
        return None
    if tokenizer.mask_id is None:
        raise ConfigError(
            "tokenizer.path: this tokenizer has no <mask>, which architecture encoder needs; leave tokenizer.path out."
        )
    special = {tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id, *tokenizer.control_ids}
    ordinary = tuple(number for number in range(tokenizer.target_vocab_size) if number not in special)
    return Masking(config.training.seed, tokenizer.mask_id, tokenizer.eos_id, ordinary)


def perplexity_report(config: Config, prepared: Prepared) -> PerplexityReport:
    """How the loss on valid is reported: of a next-token model also as the perplexity of a character."""
    from heedful.training.validation import PerplexityReport

    if not config.model.is_language_model:
        return PerplexityReport()
    if config.model.architecture == "encoder":
        return PerplexityReport("perplexity of masked tokens", is_summarised=True)
    valid = prepared.valid
    texts = prepared.tokenizer.decode_all([valid.pair(index)[1] for index in range(len(valid))])
    num_characters = sum(len(text) + 1 for text in texts)
    return PerplexityReport(tokens_per_character=valid.target.num_tokens / num_characters, is_summarised=True)


def finish_language_model(config: Config, prepared: Prepared, loop: TrainingLoop, console: Console) -> None:
    """Compute the perplexity on the test corpora, and name the next command."""
    if loop.stopped_by not in (None, "early stopping"):
        console.note(f"Stopped by {loop.stopped_by} at step {loop.progress.steps}; --resume continues from here.")
    elif prepared.test_pairs:
        measure_test_texts(config, prepared, loop.device, console)
    text = "Some words to continue" if config.model.architecture == "decoder" else "A word is <mask> here."
    console.note(f'The model is in {config.output}. Try: heedful generate -m {config.output} "{text}"')


def measure_test_texts(config: Config, prepared: Prepared, device: torch.device, console: Console) -> None:
    """The perplexity of the published model on each test text, which becomes part of its card."""
    from heedful.decoding.text_generation import TextGenerator
    from heedful.model_dir import load_model, save_model

    generator = TextGenerator.load(config.output, device=str(device))
    names = [corpus["name"] for corpus in prepared.report["corpora"] if corpus["role"] == "test"]
    scores = []
    for index, name in enumerate(names):
        lines = [pair.target for pair in prepared.test_pairs if pair.corpus_index == index]
        measured = generator.perplexity(lines)
        console.note(f"{name}: {measured}")
        scores += [{**score, "data": name} for score in measured.scores()]
    loaded = load_model(config.output)
    save_model(
        config.output,
        weights=loaded.model,
        config=loaded.config,
        tokenizer=loaded.tokenizer,
        details=loaded.details,
        scores=scores,
    )
