"""The page of `heedful see` in a real browser: it shows what Python computes, and works as a reader expects."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heedful import Translator
from heedful.inspection import Intervention, Trace, trace
from heedful.inspection.static_site import named_models, site_models, write_site
from tests.web.web_build import WEB, needs_node

pytestmark = [
    needs_node,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium"),
    pytest.mark.slow,
]

SENTENCE, LANGUAGE = "I would like a cup of coffee, please.", "de"
SCENARIOS = (
    "decoding", "another_token", "typing", "hover", "head", "cell", "intervention", "language_and_theme",
    "accept_language", "deep_links", "walk", "exports", "accessibility", "phone", "keyboard", "long_text",
)  # fmt: skip
SVG = "{http://www.w3.org/2000/svg}"


class QuietServer(http.server.SimpleHTTPRequestHandler):
    """A plain file server."""

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The site with the default model, below a path of a plain file server."""
    root = tmp_path_factory.mktemp("site")
    write_site(site_models(named_models([])), root / "sub" / "path")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietServer, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/sub/path/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser(address: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser reports of all scenarios."""
    request = {
        "address": address,
        "executablePath": shutil.which("chromium"),
        "folder": str(tmp_path_factory.mktemp("downloads")),
        "sentence": SENTENCE,
        "to": LANGUAGE,
        "scenarios": SCENARIOS,
    }
    done = subprocess.run(
        ["node", str(WEB / "tests" / "page.mjs")],
        input=json.dumps(request), capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def found(browser: dict[str, Any]) -> dict[str, Any]:
    results: dict[str, Any] = browser["results"]
    return results


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.load(engine="native")


@pytest.fixture(scope="module")
def traced(translator: Translator) -> Trace:
    return trace(translator, SENTENCE, target_language=LANGUAGE)


def test_every_scenario_ran(found: dict[str, Any]) -> None:
    failed = {name: result for name, result in found.items() if isinstance(result, dict) and "failed" in result}
    assert not failed, json.dumps(failed, indent=1)


def test_browser_reports_no_error_and_sends_no_request_elsewhere(browser: dict[str, Any]) -> None:
    assert browser["errors"] == []
    assert browser["outside"] == []


def test_decoding_shows_the_candidates_of_the_trace(found: dict[str, Any], traced: Trace) -> None:
    shown = found["decoding"]
    assert shown["output"] == traced.text
    probabilities = traced["probabilities"][1]
    best = np.argsort(-probabilities, kind="stable")[:10]
    assert [candidate["token"] for candidate in shown["candidates"]] == best.tolist()
    np.testing.assert_allclose(
        [candidate["probability"] for candidate in shown["candidates"]], probabilities[best], rtol=1e-5
    )
    assert len(shown["target"]) == 2 and len(shown["step2"]) == 3  # later tokens are hidden


def test_choosing_another_token_continues_from_there(
    found: dict[str, Any], traced: Trace, translator: Translator
) -> None:
    shown = found["another_token"]
    assert shown["prefix"] == f"{traced.target_ids[1]}-{shown['token']}"
    prefix = translator.tokenizer.decode([traced.target_ids[1], shown["token"]])
    assert shown["output"].startswith(prefix)
    assert shown["output"] != traced.text


def test_typed_sentence_is_translated_and_kept_in_the_address(found: dict[str, Any], translator: Translator) -> None:
    shown, sentence = found["typing"], "Where is the train station?"
    assert shown["focused"] == "text" and shown["text"] == sentence
    assert shown["output"] == shown["reloaded"] == trace(translator, sentence, target_language=LANGUAGE).text


def test_pointing_at_a_token_lights_it_in_several_places(found: dict[str, Any]) -> None:
    assert found["hover"] >= 3


def expected_head_stages(traced: Trace, attention: str, layer: int, head: int) -> dict[str, np.ndarray]:
    stack, sublayer = (
        ("encoder" if attention == "encoder" else "decoder"),
        ("cross_attention" if attention == "cross" else "self_attention"),
    )
    place = f"{stack}.layers.{layer}.{sublayer}"
    heads = traced[f"{place}.head_outputs"]
    expected = {
        "x": traced[f"{place}_norm.output"],  # the bundled model is pre-norm
        "Q": traced[f"{place}.query"][head],
        "K": traced[f"{place}.key"][head],
        "V": traced[f"{place}.value"][head],
        "S": traced[f"{place}.scores"][head],
        "S′": traced[f"{place}.scaled_scores"][head],
        "A": traced[f"{place}.weights"][head],
        "Z": heads[head],
        "C": heads.transpose(1, 0, 2).reshape(heads.shape[1], -1),
        "Y": traced[f"{place}.output"],
    }
    if attention == "cross":
        expected["m"] = traced["memory"]
    return expected


@pytest.mark.parametrize("attention", ["encoder", "decoder", "cross"])
def test_every_number_of_the_head_view_is_the_one_of_python(
    attention: str, found: dict[str, Any], traced: Trace
) -> None:
    expected = expected_head_stages(traced, attention, layer=1, head=2)
    shown: dict[str, np.ndarray] = {}
    for group in ET.parse(found["head"][attention]).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        cells = [
            float(cell.attrib["data-value"]) for cell in group.findall(f"{SVG}rect") if "data-value" in cell.attrib
        ]
        if title is not None and title.text and cells:
            shown[title.text.split(" ")[0]] = np.array(cells, np.float32)
    assert expected.keys() <= shown.keys()
    for name, tensor in expected.items():
        np.testing.assert_allclose(shown[name], tensor.ravel(), rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_cell_writes_out_its_computation(found: dict[str, Any]) -> None:
    stages = found["cell"]
    assert len(stages) >= 8
    for stage, shown in stages.items():
        assert np.isfinite(float(shown["value"])), stage
        assert "false" not in shown["agrees"], stage
    assert sum("true" in shown["agrees"] for shown in stages.values()) >= 6


def test_interventions_show_the_translation_of_the_changed_model(
    found: dict[str, Any], traced: Trace, translator: Translator
) -> None:
    change = Intervention("remove", "decoder", "cross_attention")
    changed = trace(translator, SENTENCE, target_language=LANGUAGE, interventions=[change])
    assert changed.text != traced.text
    assert {traced.text, changed.text} <= set(found["intervention"]["outputs"])


def test_language_and_theme_can_be_switched_and_stay(found: dict[str, Any]) -> None:
    shown = found["language_and_theme"]
    assert "分享" in shown["chinese"] and shown["lang"] == "zh-CN"
    assert shown["background"] == "rgb(20, 22, 26)"
    assert shown["kept"] == ["zh-CN", "dark"]
    assert found["accept_language"] == "zh-CN"


def test_links_open_the_view_that_they_name(found: dict[str, Any]) -> None:
    for link in found["deep_links"]:
        assert link["selected"] == f"tab-{link['state']['view']}"
        assert link["state"].items() <= link["fields"].items()


def test_guided_walk_has_fourteen_stops_with_links(found: dict[str, Any]) -> None:
    stops = found["walk"]["stops"]
    assert [stop["stop"] for stop in stops] == [str(number) for number in range(1, 15)]
    assert len({stop["title"] for stop in stops}) == 14 and found["walk"]["isLast"]
    assert {stop["view"] for stop in stops} >= {"tab-positions", "tab-head", "tab-attention", "tab-norms", "tab-beam"}


def test_exports_hold_the_translation(found: dict[str, Any], traced: Trace) -> None:
    files = found["exports"]
    assert ET.parse(files["svg"]).getroot().tag == f"{SVG}svg"
    assert Path(files["png"]).read_bytes().startswith(b"\x89PNG")
    gif = Path(files["gif"]).read_bytes()
    assert gif.startswith(b"GIF89a") and gif.count(b"\x21\xf9\x04") == len(traced.target_ids)  # one frame a step
    described = json.loads(Path(files["json"]).read_text("utf-8"))
    assert described["translation"] == traced.text
    assert [token["id"] for token in described["source"]] == traced.source_ids
    for name, tensor in described["attention"].items():
        np.testing.assert_allclose(
            np.array(tensor["values"], np.float32).reshape(tensor["shape"]), traced[name], atol=1e-6, err_msg=name
        )
    page = Path(files["html"]).read_text("utf-8")
    assert not re.search(r"""(src|href)=["']?https?:""", page)
    assert files["opened"]["output"] == traced.text and files["opened"]["tab"] == "tab-attention"
    assert files["opened"]["arcs"] > 0 and files["requests"] == []


def test_axe_finds_nothing(found: dict[str, Any]) -> None:
    assert found["accessibility"] == []


def test_no_view_is_wider_than_a_phone(found: dict[str, Any]) -> None:
    assert found["phone"] == []


def test_keys_open_the_help_and_change_the_view(found: dict[str, Any]) -> None:
    assert found["keyboard"]["dialog"]
    assert {"BUTTON", "TEXTAREA", "SELECT"} <= set(found["keyboard"]["reached"])


def test_a_source_of_500_tokens_is_shown(found: dict[str, Any]) -> None:
    shown = found["long_text"]
    assert shown["tokens"] > 480 and shown["canvases"] >= 1
    assert shown["problem"] == []
