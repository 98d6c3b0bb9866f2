"""The record of a model's alignment source: read, refused, and replaced without changing other files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from heedful.decoding.translator import Translator
from heedful.errors import ModelDirectoryError
from heedful.model_dir import describe, load_weights, verify
from heedful.model_dir.files import locate
from heedful.model_dir.registry import bundled_model
from heedful.model_dir.save_load import KEY, AlignmentSource, default_source, recorded_source, save_details

SIZES = {"num_layers": 2, "num_heads": 6}


def test_alignment_source_round_trip() -> None:
    for chosen in (AlignmentSource(1, 0), AlignmentSource(0, 1, head=5)):
        assert recorded_source({KEY: json.loads(json.dumps(chosen.to_dict()))}, **SIZES) == chosen
    assert recorded_source({KEY: {"layer": 1, "offset": 0}}, **SIZES) == AlignmentSource(1, 0)
    assert recorded_source({}, **SIZES) is None


@pytest.mark.parametrize("layers", range(1, 9))
def test_default_source_exists_in_every_decoder(layers: int) -> None:
    assert 0 <= default_source(layers).layer < layers


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ([1, 0], "expected layer, offset, head"),
        ({"layer": 0, "offset": 0, "heads": [1]}, "expected layer, offset, head"),
        ({"layer": 2, "offset": 0}, r"alignment\.layer: expected a number from 0 to 1, not 2"),
        ({"layer": 0, "offset": -1}, r"alignment\.offset: expected a number from 0 to 1, not -1"),
        ({"layer": 0, "offset": 0, "head": 6}, r"alignment\.head: expected a number from 0 to 5, not 6"),
        ({"layer": True, "offset": 0}, r"alignment\.layer"),
        ({"offset": 0}, r"alignment\.layer: .* not None"),
    ],
)
def test_invalid_alignment_source_is_refused(record: object, named: str) -> None:
    with pytest.raises(ModelDirectoryError, match=named) as found:
        recorded_source({KEY: record}, **SIZES)
    assert "record_alignment" in str(found.value)


def test_recording_alignment_keeps_other_files(tmp_path: Path) -> None:
    bundled = bundled_model()
    assert bundled is not None
    copy = shutil.copytree(bundled, tmp_path / "model", ignore=shutil.ignore_patterns("native-*"))
    before = {name: entry.sha256 for name, entry in locate(copy).entries.items()}
    weights = load_weights(copy)
    save_details(copy, {KEY: {"layer": 1, "offset": 0, "head": None}})
    after = {name: entry.sha256 for name, entry in locate(copy).entries.items()}
    assert {name for name in before if before[name] != after[name]} == {"config.json"} and before.keys() == after.keys()
    assert set(verify(copy)) == set(before)
    details = describe(copy)["details"]
    assert details[KEY] == {"layer": 1, "offset": 0, "head": None}
    assert {k: v for k, v in details.items() if k != KEY} == {
        k: v for k, v in describe(bundled)["details"].items() if k != KEY
    }
    for name, tensor in load_weights(copy).items():
        np.testing.assert_array_equal(tensor.numpy(), weights[name].numpy())
    aligned = [
        Translator.load(copy, engine=engine, device="cpu").translate(["Das Haus ist alt."], align=True)[0].alignment
        for engine in ("native", "torch")
    ]
    assert aligned[0] == aligned[1]
