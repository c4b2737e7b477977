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
    assert "\n" not in caught.value.detail and "^" not in caught.value.detail, "one line for people, no traceback"
    assert "importlib" not in caught.value.detail


@pytest.mark.parametrize(
    ("code", "name", "detail", "hint"),
    [
        ("import mainspring\napp = mainspring.Mainspring()", "nope", "has no 'nope'", "use {module}:app"),
        ("import mainspring\na = mainspring.Mainspring()\nb = mainspring.Mainspring()", "x", "has no 'x'",
         "use {module}:a or {module}:b"),
        ("app = None", "app", "is None, not a Mainspring application", "add app = Mainspring() to "),
        ("app = 3", "app", "is of type int, not a Mainspring application", "the module has no application"),
    ],
)  # fmt: skip
def test_a_name_that_is_no_application_is_answered_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, name: str, detail: str, hint: str
) -> None:
    module = f"names_{abs(hash((code, name)))}"
    (tmp_path / f"{module}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidInput) as caught:
        load_app(f"{module}:{name}")
    assert detail in caught.value.detail and hint.format(module=module) in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ("shop", "such as shop:app"),
        (":app", "such as hello:app"),
        ("shop.py", "name the module, not its file: shop:app"),
        ("code/shop.py:main", "name the module, not its file: shop:main, in the folder code"),
        ("./shop:app", "name the module, not its file: shop:app"),
    ],
)
def test_a_file_is_answered_with_its_module(named: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_app(named)
    assert (refused.value.field, refused.value.hint) == ("app", hint)
