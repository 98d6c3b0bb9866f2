"""Where a model's alignments come from: the cross-attention that best predicts the source of a target token.

That differs from model to model, and so does the step that shows it: in most layers the step that predicts a token
attends to its source, in others the step that reads it, one later. `heedful train` measures all of them and stores the
best in the details of config.json; `heedful.decoding.alignment_selection` does the same for any model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from heedful.errors import ModelDirectoryError

if TYPE_CHECKING:
    import numpy as np

    from heedful.search_types import AttentionWeights

Weights = TypeVar("Weights", "np.ndarray", "AttentionWeights")
KEY = "alignment"
"""Key in the details of config.json."""
REMEDY = "remove it, or choose it again with heedful.decoding.alignment_selection.record_alignment"


@dataclass(frozen=True)
class AlignmentSource:
    """The attention that alignments are read from."""

    layer: int
    """Of the decoder, from 0."""
    offset: int
    """0: the step that predicts a token attends to its source; 1: the step that reads it does."""
    head: int | None = None
    """From 0; None: the mean over all heads of the layer."""

    def rows(self, weights: Weights, num_tags: int) -> Weights:
        """Of the weights of all steps: the row of each target token, the columns of the source without special tokens.

        `weights`: one row a step, the first of which reads the start token and the last the last word.
        """
        last = len(weights) - 1
        return weights[self.offset : self.offset + last, num_tags:-1]

    def to_dict(self) -> dict[str, int | None]:
        """For config.json."""
        return {"layer": self.layer, "offset": self.offset, "head": self.head}


def default_source(num_layers: int) -> AlignmentSource:
    """Where alignments come from in a model without a record.

    The last layer of up to three, otherwise the last but one: the best in most models that were measured.
    """
    return AlignmentSource(layer=max(num_layers - (1 if num_layers <= 3 else 2), 0), offset=0)


def recorded_source(details: Mapping[str, Any], *, num_layers: int, num_heads: int) -> AlignmentSource | None:
    """The source recorded in the details of a model, or None."""
    record = details.get(KEY)
    if record is None:
        return None
    limits = {"layer": num_layers, "offset": 2, "head": num_heads}
    if not isinstance(record, Mapping) or not record.keys() <= limits.keys():
        raise ModelDirectoryError(
            f"config.json: details.{KEY}: expected {', '.join(limits)}, not {record!r}; {REMEDY}."
        )
    for name, limit in limits.items():
        value = record.get(name)
        if (name == "head" and value is None) or (type(value) is int and 0 <= value < limit):
            continue
        raise ModelDirectoryError(
            f"config.json: details.{KEY}.{name}: expected a number from 0 to {limit - 1}, not {value!r}; {REMEDY}."
        )
    return AlignmentSource(record["layer"], record["offset"], record.get("head"))
