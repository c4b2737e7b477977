"""Finding a worker's application, and saying where in the user's code it went wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.domain.errors import InvalidInput
from mainspring.worker.execution.application import load_app


def test_a_module_that_is_not_there_is_named_without_the_import_machinery() -> None:
    with pytest.raises(InvalidInput, match="cannot import nowhere_at_all: ModuleNotFoundError") as caught:
        load_app("nowhere_at_all:app")
    assert "importlib" not in caught.value.detail


def test_a_module_that_raises_shows_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raises_on_import.py").write_text("x = 1\nassert x == 2, 'no'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidInput, match="AssertionError: no") as caught:
        load_app("raises_on_import:app")
    assert "raises_on_import.py" in caught.value.detail and "line 2" in caught.value.detail
    assert "importlib" not in caught.value.detail
