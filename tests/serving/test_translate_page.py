"""The translation page in a real browser: it shows what the server translates, and works as a reader expects."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heedful.config import Config
from heedful.inspection.page_server import HEADERS
from heedful.serving.keys import KeyStore
from tests.serving.running_server import SENTENCES, RunningServer, running_server
from tests.untrained_models import save_untrained
from tests.web.web_build import BUILT, WEB, needs_node

needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
SCENARIOS = (
    "typing", "late_answers", "redirected", "swap", "hover", "alternatives", "other_translations", "long_text",
    "too_long", "files", "history", "key", "language_and_theme", "links", "commands", "keyboard", "problems",
    "accessibility", "phone", "below_a_path", "unnamed_languages",
)  # fmt: skip
COFFEE = "I would like a cup of coffee, please."
GARDEN = "Gestern haben die Kinder im Garten gespielt, bis es dunkel wurde."
LONG = "".join(
    f"{number} days ago: {sentence} " + "\n\n" * (number % 7 == 0) for number in range(50) for sentence in SENTENCES
)
"""Longer than a request may be."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server"), workers=1) as server:
        yield server


@pytest.fixture(scope="module")
def browser(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser reports of all scenarios."""
    folder = tmp_path_factory.mktemp("browser")
    store = KeyStore(folder / "keys.sqlite", create=True)
    key = store.add("reader")
    store.close()
    plain, keys = str(folder / "plain"), folder / "keys.sqlite"
    save_untrained(folder / "plain", SENTENCES, Config(), vocab_size=330, details={})
    with running_server(folder, workers=1, keys=keys) as keyed, running_server(folder, "-m", plain) as unnamed:
        request = {
            "address": f"http://127.0.0.1:{server.port}/",
            "keyed": f"http://127.0.0.1:{keyed.port}/",
            "key": key,
            "unnamed": f"http://127.0.0.1:{unnamed.port}/",
            "executablePath": shutil.which("chromium"),
            "folder": str(folder),
            "long": LONG,
            "scenarios": SCENARIOS,
        }
        done = subprocess.run(
            ["node", str(WEB / "tests" / "translate_page.mjs")],
            input=json.dumps(request), capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture
def found(browser: dict[str, Any], request: pytest.FixtureRequest) -> Any:
    """What the scenario with the name of the test found."""
    results = browser["results"][request.node.name.removeprefix("test_")]
    assert "failed" not in results, results["failed"]
    return results


# ---- the files -----------------------------------------------------------------------------------------------------


def test_pages_have_strict_headers_and_are_compressed(server: RunningServer) -> None:
    for path, file in {
        "/": BUILT / "translate" / "index.html",
        "/translate.js": BUILT / "translate" / "translate.js",
        "/translate.css": BUILT / "translate" / "translate.css",
        "/see/": BUILT / "index.html",
        "/see/page.js": BUILT / "page.js",
        "/see/engine.wasm": BUILT / "engine.wasm",
    }.items():
        plain, small = server.get(path), server.get(path, headers={"Accept-Encoding": "gzip"})
        assert plain.status == small.status == 200
        assert plain.body == gzip.decompress(small.body) == file.read_bytes()
        assert {**plain.headers, **{name.lower(): value for name, value in HEADERS.items()}} == plain.headers
        policy = dict(part.strip().split(" ", 1) for part in plain.headers["content-security-policy"].split(";"))
        assert (policy["default-src"], policy["style-src"], policy["connect-src"]) == ("'none'", "'self'", "'self'")
        assert policy["script-src"] == ("'self' 'wasm-unsafe-eval'" if path.startswith("/see/") else "'self'")
        assert "Accept-Encoding" in plain.headers["vary"]
        assert small.headers["content-encoding"] == "gzip"
        for answer, accepted in ((plain, ""), (small, "gzip")):
            asked = {"If-None-Match": answer.headers["etag"], "Accept-Encoding": accepted}
            assert (again := server.get(path, headers=asked)).status == 304
            assert again.body == b""
        assert plain.headers["etag"] != small.headers["etag"]
    assert server.get("/see").headers["location"] == "see/"
    for path in ("/see/no.js", "/see/../../pyproject.toml", "/see/example/index.html", "/translate/index.html"):
        assert server.get(path).status in (404, 405), path


def test_the_page_of_see_has_the_served_models(server: RunningServer) -> None:
    settings, site = server.get("/page.json").json(), server.get("/see/site.json").json()
    served = {model["name"]: model for model in server.get("/api/v1/models").json()["models"]}
    shown = {model["name"]: model for model in site["models"]}
    assert shown.keys() == served.keys()
    assert {tuple(one[:2]) for one in settings["see"]} == {tuple(pair) for pair in settings["directions"]}
    for source, target, name in settings["see"]:
        assert {"source": source, "target": target} in shown[name]["directions"]
        first = next(model for model in served.values() if [source, target] in model["directions"])
        assert first["name"] == name
    manifest = server.get(f"/see/{site['models'][0]['directory']}model.json").json()
    weights = server.get(f"/see/{site['models'][0]['directory']}{manifest['weights']}")
    assert len(weights.body) == manifest["files"][manifest["weights"]]["bytes"]


def test_the_page_of_see_follows_a_reload(tmp_path: Path) -> None:
    place, token = tmp_path / "model", {"Authorization": "Bearer secret"}
    save_untrained(place, SENTENCES, Config(name="Old"), vocab_size=330, details={})
    with running_server(tmp_path, "-m", str(place), workers=1, operations_token="secret") as server:
        assert server.get("/see/site.json").json()["models"][0]["title"] == "Old"
        shutil.rmtree(place)
        save_untrained(place, SENTENCES, Config(name="New"), vocab_size=340, details={})
        assert server.request("POST", "/operations/reload", headers=token).status == 200
        assert server.get("/see/site.json").json()["models"][0]["title"] == "New"


# ---- in the browser ------------------------------------------------------------------------------------------------


def in_browser(test: Any) -> Any:
    """The marks of the tests with a browser."""
    return needs_node(needs_browser(pytest.mark.slow(test)))


def translation(server: RunningServer, text: str, target: str = "de", **parameters: Any) -> str:
    """What the server's own interface translates a text into."""
    return str(server.translate(text, target, **parameters).json()["text"])


@in_browser
def test_typing(server: RunningServer, found: Any) -> None:
    assert found["first"] == translation(server, COFFEE)
    assert found["second"] == f"{translation(server, COFFEE)} {translation(server, 'It is cold.')}"
    assert (found["detected"], found["title"]) == ("en", "English (detected)")
    assert found["sent"][-1] == f"{COFFEE} It is cold."
    assert COFFEE in found["sent"]
    assert len(found["sent"]) < len(COFFEE) / 2  # not one for each key
    assert "text" not in found["hash"]  # what is typed is not in the browser's history
    assert (found["count"], found["text"]) == ("0", "")


@in_browser
def test_late_answers(server: RunningServer, found: Any) -> None:
    assert found == [translation(server, "It is raining.")] * 2


@in_browser
def test_redirected(server: RunningServer, found: Any) -> None:
    assert found["chinese"] == {"languages": ["", "en"], "output": translation(server, "今天天气很好。", "en")}
    assert found["german"] == {"languages": ["", "en"], "output": translation(server, GARDEN, "en")}


@in_browser
def test_swap(server: RunningServer, found: Any) -> None:
    assert found["text"] == found["before"] == translation(server, COFFEE)
    assert found["languages"] == ["de", "en"]
    assert found["output"] == translation(server, found["text"], "en")


@in_browser
def test_hover(server: RunningServer, found: Any) -> None:
    result = server.translate(COFFEE, source="en", align=True).json()
    pairs = [(COFFEE[a:b], result["text"][c:d]) for (a, b), (c, d) in result["alignment"]]
    for word in ("Kaffee", "Tasse"):
        assert found[word] == {"source": [one for one, other in pairs if other == word], "target": [word]}
    assert found["coffee"] == {"source": ["coffee"], "target": [other for one, other in pairs if one == "coffee"]}
    assert found["left"] == []
    assert found["sameHeight"]


@in_browser
def test_alternatives(server: RunningServer, found: Any) -> None:
    sentence = translation(server, GARDEN, "en")
    before = sentence.partition("children")[0]
    assert found["before"].startswith(sentence)
    assert found["options"]
    for option in found["options"]:
        assert option["word"] != "children"
        assert option["sentence"].startswith(before + option["word"])
        assert translation(server, GARDEN, "en", prefix=option["sentence"].rstrip(".")) == option["sentence"]
    chosen = found["options"][0]["sentence"]
    assert found["chosen"] == found["before"].replace(sentence, chosen)
    assert found["source"] == ["Kinder"]
    assert found["kept"].startswith(chosen)
    assert found["kept"] != found["chosen"]
    best = server.translate(GARDEN, "en", alternatives=3).json()
    assert found["whole"] == [one["text"] for one in best["alternatives"]]
    assert found["closed"]


@in_browser
def test_other_translations(server: RunningServer, found: Any) -> None:
    best = server.translate(COFFEE, source="en", alternatives=3).json()
    assert found["before"] == best["text"]
    assert found["others"] == [one["text"] for one in best["alternatives"]]
    assert found["output"] == found["others"][0]
    assert found["after"] == [found["before"], *found["others"][1:]]


@in_browser
def test_long_text(server: RunningServer, found: Any) -> None:
    answer = server.request("POST", "/api/v1/stream", {"text": LONG, "source": "en", "target": "de"}, timeout=600)
    events = [json.loads(line[6:]) for line in answer.body.decode().split("\n") if line.startswith("data: ")]
    assert found["output"] == "".join(event.get("text", "") for event in events)
    assert 0 < found["early"] < len(found["output"])
    assert found["requests"] > 1
    assert not found["problem"]


@in_browser
def test_too_long(server: RunningServer, found: Any) -> None:
    assert "100,002" in found["message"]
    assert "100,000" in found["message"]
    assert found["output"] == translation(server, "It is raining.")
    assert found["gone"]


@in_browser
def test_files(server: RunningServer, found: Any) -> None:
    translated = Path(found["file"]).read_text()
    assert found["name"] == "notes.de.md"
    assert translated == f"# {translation(server, 'Weather')}\n\n{translation(server, 'It is raining.')} `x = 1`\n"
    assert found["invited"]
    assert ".md" in found["refused"]
    assert found["empty"]


@in_browser
def test_history(server: RunningServer, found: Any) -> None:
    assert found["copied"] == translation(server, COFFEE)
    assert found["kept"] == [COFFEE, "It is raining."]
    assert found["restored"] == {"text": "It is raining.", "output": translation(server, "It is raining.")}
    assert found["less"] == [COFFEE]
    assert found["off"] == []
    assert not found["leaks"]


@in_browser
def test_key(server: RunningServer, found: Any) -> None:
    assert "needs an API key" in found["missing"]
    assert "refuses the API key" in found["wrong"]
    assert found["output"] == translation(server, "It is raining.", found["to"])
    assert found["inSession"]
    assert not found["inLocal"]
    assert not found["command"]


@in_browser
def test_language_and_theme(found: Any) -> None:
    assert found["english"] == {"html": "en", "title": "Translation", "background": "rgb(255, 255, 255)"}
    assert found["chinese"] == found["again"] == {"html": "zh-CN", "title": "翻译", "background": "rgb(20, 22, 26)"}
    assert found["accepted"] == {"html": "zh-CN", "languages": ["", "zh"]}


@in_browser
def test_links(server: RunningServer, found: Any) -> None:
    output = translation(server, GARDEN, "en", source="de")
    assert found["opened"] == {"text": GARDEN, "languages": ["de", "en"], "output": output}
    assert (found["path"], found["text"], found["to"]) == ("/see/", GARDEN, "en")
    assert found["seen"] == found["output"] == output


@in_browser
def test_below_a_path(server: RunningServer, found: Any) -> None:
    assert found == {"output": translation(server, GARDEN, "en"), "see": "/mt/see/"}


@in_browser
def test_unnamed_languages(found: Any) -> None:
    assert found["titles"] == ["Detect language", "Unnamed language"]
    assert found["output"]
    assert (found["to"], found["model"]) == ("", "plain")


@in_browser
def test_commands(server: RunningServer, found: Any) -> None:
    expected = translation(server, "It's raining.", source="en")
    places: dict[str, list[Any]] = {
        "heedful": ["text"],
        "LibreTranslate": ["translatedText"],
        "DeepL": ["translations", 0, "text"],
        "OpenAI": ["choices", 0, "message", "content"],
    }
    for name, place in places.items():
        curl, url, _, header, _, data = shlex.split(found[name].replace("\\\n", " "))
        assert (curl, header) == ("curl", "Content-Type: application/json")
        answer = server.request("POST", re.sub(r"^http://[^/]+", "", url), data.encode()).json()
        for step in place:
            answer = answer[step]
        assert answer == expected, name


@in_browser
def test_keyboard(server: RunningServer, found: Any) -> None:
    second = translation(server, "It is raining.").split()[1].rstrip(".")
    assert found == {
        "dialog": True, "focused": "text", "left": "", "second": second, "inside": True, "back": second,
        "history": True, "swapped": ["de", "en"], "requests": 1,
    }  # fmt: skip


@in_browser
def test_problems(server: RunningServer, found: Any) -> None:
    assert re.search(r"cannot be reached.*Trying again in \d+ s", found["offline"])
    assert found["after"] == {"output": translation(server, "It is raining."), "gone": True}
    assert re.search(r"busy.*Trying again in [012] s", found["busy"])
    assert found["output"] == translation(server, "Good morning.")


@in_browser
def test_accessibility(found: Any) -> None:
    assert found == []


@in_browser
def test_phone(found: Any) -> None:
    assert found == []


@in_browser
def test_there_are_no_errors_and_no_requests_to_others(browser: dict[str, Any]) -> None:
    assert browser["errors"] == []
    assert browser["outside"] == []
