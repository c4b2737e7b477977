"""Each command of the page about access works, in its order, at a new Mainspring."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.docs.sitting import steps_of
from tests.docs.test_runbooks import do_step
from tests.docs.test_sitting import Sitting
from tests.processes.cluster import free_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "access.md"


@pytest.mark.slow
def test_every_command_of_the_page_about_access_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sitting = Sitting(tmp_path, free_port(), "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("MAINSPRING_")]:
        monkeypatch.delenv(name)
    steps = list(steps_of(PAGE))
    assert len(steps) > 20
    try:
        for step in steps:
            if ">" in step.text or "|" in step.text:  # what the shell does
                sitting.do(step)
            else:
                do_step(sitting, step, capsys)
    finally:
        sitting.shell.stop()
