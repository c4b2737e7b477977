"""The public names of `mainspring`, and what importing it loads."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import mainspring
from mainspring.domain import errors

ROOT = Path(__file__).parents[2]


def test_the_public_names_are_sorted_and_all_of_them_exist() -> None:
    assert mainspring.__all__ == sorted(mainspring.__all__)
    for name in mainspring.__all__:
        assert getattr(mainspring, name) is not None


def test_every_error_of_the_tree_is_public() -> None:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    tree = {value.__name__ for value in found if value.__module__ == errors.__name__}
    assert tree <= set(mainspring.__all__)


def test_the_version_is_the_one_of_the_project_file() -> None:
    assert mainspring.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_an_unknown_name_is_refused_as_python_does() -> None:
    assert not hasattr(mainspring, "Minespring")


def test_the_sdk_loads_neither_the_server_nor_the_database_driver() -> None:
    code = (
        "import sys, mainspring; assert 'httpx' not in sys.modules; "
        "from mainspring import Mainspring, Client; "
        "print(sorted({'asyncpg', 'uvicorn'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
