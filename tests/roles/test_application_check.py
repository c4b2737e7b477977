"""`up --app` refuses an application that cannot be loaded, before it starts anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mainspring.domain.errors import InvalidInput
from mainspring.roles.application_check import check_application

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "named", "said"),
    [
        (None, "nosuch:app", "cannot import nosuch: ModuleNotFoundError"),
        ("def x(:", "mine:app", "SyntaxError"),
        ("app = 3", "mine:app", "is of type int, not a Mainspring application"),
        ("import sys; sys.exit(4)", "mine:app", "ended the process with exit code 4"),
        ("print('hello'); raise ValueError('no\\nregion')", "mine:app", "ValueError: no\nregion"),
        ("import os; os._exit(3)", "mine:app", "ended the process with exit code 3"),
    ],
)
async def test_what_is_wrong_is_said(here: Path, source: str | None, named: str, said: str) -> None:
    if source is not None:
        (here / "mine.py").write_text(source)
    with pytest.raises(InvalidInput) as refused:
        await check_application(named, os.environ)
    assert said in str(refused.value) and refused.value.field == "app"


async def test_an_application_that_loads_is_accepted_and_a_slow_one_is_not_judged(here: Path) -> None:
    (here / "mine.py").write_text("from mainspring import Mainspring\nprint('loading')\napp = Mainspring()\n")
    await check_application("mine:app", os.environ)
    (here / "slow.py").write_text("import threading\nthreading.Event().wait()\n")
    await check_application("slow:app", os.environ, patience=0.5)
