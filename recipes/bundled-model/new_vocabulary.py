"""Give a model a new vocabulary, as a start for further training on other languages.

    python3 recipes/bundled-model/new_vocabulary.py learn VOCABULARY.model TEXT… --languages en,zh --size 24000
    python3 recipes/bundled-model/new_vocabulary.py replace MODEL VOCABULARY.model OUT

A piece that the old vocabulary has keeps its embedding; a new piece starts with the mean of the embeddings of the old
pieces, or bytes, that it consists of. All other weights are kept. The model must share one embedding between source,
target and output.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

LONGEST_LINE = 300
TAG = re.compile(r"<2(\w+)>")


def learn(vocabulary: Path, texts: list[Path], languages: list[str], size: int) -> None:
    """Write a BPE vocabulary of all lines with the tags of these languages."""
    from heedful.config import TokenizerConfig
    from heedful.text.tokenizer_training import train_subwords

    lines = [line for path in texts for line in path.read_text(encoding="utf-8").split("\n")]
    short = [line for line in lines if 0 < len(line) <= LONGEST_LINE]
    config = TokenizerConfig(character_coverage=0.99997)
    tags = [f"<2{language}>" for language in languages]
    model = train_subwords(short, config, vocab_size=size, num_pairs=len(short), control_symbols=tags)
    vocabulary.write_bytes(model)


def parts_of(piece: str, known: dict[str, int]) -> list[int]:
    """The ids of the longest known pieces, from the left; unknown characters become bytes."""
    found, start = list[int](), 0
    while start < len(piece):
        end = next((end for end in range(len(piece), start, -1) if piece[start:end] in known), start)
        whole = [known[piece[start:end]]] if end > start else None
        found += whole or [known[f"<0x{byte:02X}>"] for byte in piece[start].encode()]
        start = max(end, start + 1)
    return found


def pieces_of(vocabulary: Path) -> list[str]:
    """All pieces of a SentencePiece model in order."""
    import sentencepiece

    processor: Any = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))
    return [processor.id_to_piece(number) for number in range(processor.get_piece_size())]


def put(model: Path, vocabulary: Path, out: Path) -> None:
    """Write the model with the new vocabulary."""
    import torch

    from heedful.model_dir.save_load import load_model, save_model
    from heedful.text.tokenizer import Tokenizer

    found = load_model(model)
    if found.config.model.tying != "three_way":
        sys.exit(f"new_vocabulary.py: {model} has several embeddings; it needs model.tying=three_way.")
    known = {piece: number for number, piece in enumerate(pieces_of(model / "tokenizer.model"))}
    pieces = pieces_of(vocabulary)
    weights = {name: values.float() for name, values in found.model.state_dict().items()}
    tables = [name for name in weights if name.endswith("embedding.weight") or name == "output.weight"]
    old = weights[tables[0]]
    weights.update(dict.fromkeys(tables, torch.stack([old[parts_of(piece, known)].mean(dim=0) for piece in pieces])))
    tags = [match[1] for match in map(TAG.fullmatch, pieces) if match]
    shape = replace(found.config.model, source_vocab_size=len(pieces), target_vocab_size=len(pieces))
    config, tokenizer = replace(found.config, model=shape), Tokenizer(vocabulary.read_bytes(), kind="bpe", tags=tags)
    corpora = (found.details.get("data") or {}).get("corpora", ())
    kept = [one for one in corpora if {one.get("source_language"), one.get("target_language")} <= {*tags}]
    details = {**found.details, "data": {"corpora": kept}, "training": {}}  # other directions are lost with their tags
    save_model(out, weights=weights, config=config, tokenizer=tokenizer, details=details)
    sys.stderr.write(f"{len(pieces)} pieces in {out}, {sum(piece in known for piece in pieces)} of them as before\n")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    learning = commands.add_parser("learn")
    learning.add_argument("vocabulary", type=Path)
    learning.add_argument("text", type=Path, nargs="+")
    learning.add_argument("--languages", required=True)
    learning.add_argument("--size", type=int, required=True)
    replacing = commands.add_parser("replace")
    for name in ("model", "vocabulary", "out"):
        replacing.add_argument(name, type=Path)
    given = parser.parse_args()
    if given.command == "learn":
        learn(given.vocabulary, given.text, given.languages.split(","), given.size)
    else:
        put(given.model, given.vocabulary, given.out)


if __name__ == "__main__":
    main()
