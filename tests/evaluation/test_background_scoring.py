"""Background scoring: the same scores and errors as in the foreground."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import ConfigError
from heedful.evaluation import background_scoring
from heedful.evaluation.score import score

REFERENCES = [f"Satz {number} steht in dem kleinen Haus." for number in range(30)]
HYPOTHESES = [
    f"Satz {number} in dem\u2028 {'großen' if number % 3 else 'kleinen'} Haus \ud800." for number in range(30)
]


@pytest.mark.parametrize("least", [0, 500])
def test_scores_equal_foreground_scores(monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    monkeypatch.setattr(background_scoring, "MIN_SENTENCES", least)
    started: list[Any] = []
    start = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *command, **how: started.append(start(*command, **how)) or started[-1]
    )
    found = background_scoring.BackgroundScores(HYPOTHESES, REFERENCES, target_language="de").scores()
    assert found == score(HYPOTHESES, REFERENCES, target_language="de")
    assert [one.name for one in found] == ["BLEU", "chrF2", "TER", "ExactMatch", "CER"]
    assert [process.returncode for process in started] == ([0] * 5 if least == 0 else [])


def test_processes_import_nothing_from_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(background_scoring, "MIN_SENTENCES", 0)
    (tmp_path / "sacrebleu.py").write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    begun = background_scoring.BackgroundScores(HYPOTHESES, REFERENCES, metrics=["bleu"])
    assert begun.scores() == score(HYPOTHESES, REFERENCES, metrics=["bleu"])
    assert [made.result() is not None for made in begun._futures if made is not None] == [True]


def test_at_most_one_process_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_scoring, "MIN_SENTENCES", 0)
    monkeypatch.setattr(background_scoring, "usable_cores", lambda: 2)
    background_scoring._free_cores.cache_clear()
    counting, running, most = threading.Lock(), [0], [0]

    class Counted:
        returncode = 0

        def communicate(self) -> tuple[bytes, None]:
            with counting:
                running[0] += 1
                most[0] = max(most[0], running[0])
            time.sleep(0.02)
            with counting:
                running[0] -= 1
            return b"[]", None

    monkeypatch.setattr(background_scoring, "_start", lambda arguments: Counted())
    begun = [background_scoring.BackgroundScores(HYPOTHESES, REFERENCES) for _ in range(4)]
    assert [one.scores() for one in begun] == [[], [], [], []]
    assert (running[0], most[0]) == (0, 2)
    background_scoring._free_cores.cache_clear()


def test_failed_process_is_replaced_by_foreground_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_scoring, "MIN_SENTENCES", 0)
    with pytest.raises(ConfigError, match=r"metric 'blue' is not known .*'bleu'"):
        background_scoring.BackgroundScores(HYPOTHESES, REFERENCES, metrics=["blue"]).scores()
    with monkeypatch.context() as broken:
        broken.setattr(background_scoring.sys, "executable", "/bin/false")
        begun = background_scoring.BackgroundScores(HYPOTHESES, REFERENCES, metrics=["bleu"]).scores()
        broken.setattr(background_scoring.sys, "executable", "/nowhere/python")
        never_begun = background_scoring.BackgroundScores(HYPOTHESES, REFERENCES, metrics=["bleu"]).scores()
    assert begun == never_begun == score(HYPOTHESES, REFERENCES, metrics=["bleu"])
