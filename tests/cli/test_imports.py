"""Which modules a start imports. Imports are most of the cost of a start, and the tests start a thousand processes. A
role must not import a library that it does not use. The tests check modules, not times, which depend on the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import grimp
import pytest

from mainspring import worker

_SERVER_ONLY = frozenset({"asyncpg", "uvicorn", "prometheus_client", "obstore"})
_HTTP_CLIENTS = frozenset({"httpx", "httpcore", "h11"})
_SCREEN = frozenset({"rich", "pygments"})
_MODELS = frozenset({"pydantic", "attr"})
_COMMAND_LINE = frozenset({"typer", "click"})
_WORKSHOP = frozenset({"hypothesis", "pytest", "django", "fastapi", "sqlalchemy", "psycopg"})
_SERVER = "import mainspring.roles.server; from mainspring.api.app import app_without_a_server; app_without_a_server()"


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has imported after `code`, where no data folder of `make run` is found."""
    program = f"import sys\n{code}\nimport json\nsys.stderr.write('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def packages(modules: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def verbs(modules: Iterable[str]) -> set[str]:
    return {name for name in modules if name.startswith("mainspring.cli.")}


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import mainspring", {"msgspec", "asyncio", "typer"} | _SERVER_ONLY | _HTTP_CLIENTS | _SCREEN),
        (
            "import mainspring.sdk.app.app",
            {"asyncio", "hashlib", "socket"} | _SERVER_ONLY | _HTTP_CLIENTS | _SCREEN | _MODELS | _COMMAND_LINE,
        ),
        (
            "import mainspring.roles.worker",
            _SERVER_ONLY | _HTTP_CLIENTS | _SCREEN | _MODELS | _COMMAND_LINE | {"watchfiles"},
        ),
        (
            "import mainspring.worker.executors.process.warm.interpreter",
            _SERVER_ONLY | _HTTP_CLIENTS | _SCREEN | _MODELS,
        ),
        ("import mainspring.roles.scheduler", {"uvicorn"} | _HTTP_CLIENTS | _SCREEN | _MODELS),
        ("import mainspring.roles.up", {"uvicorn", "prometheus_client"} | _HTTP_CLIENTS),
        (_SERVER, {"typer"} | _MODELS),
    ],
    ids=["package", "application", "worker", "warm child", "scheduler", "up", "server"],
)
def test_a_part_loads_only_what_it_needs(code: str, unwanted: set[str]) -> None:
    loaded = packages(loaded_by(code))
    assert not loaded & unwanted
    assert not loaded & _WORKSHOP


def test_a_verb_loads_no_other_verb() -> None:
    """Nor does a worker load the other verbs of its noun."""
    own = ("worker", "caps", "connect", "exit_codes", "added_options", "option_values", "task_options")
    frame = ("main", "commands", "extras", "groups", "misuse", "noun", "prepare", "shared_options")
    for words in (["worker", "start", "--help"], ["worker", "--nope"]):
        loaded = loaded_by(f"from mainspring.cli.main import main; main({words})")
        assert verbs(loaded) == {f"mainspring.cli.{name}" for name in (*own, *frame)}


@pytest.mark.parametrize("package", ["mainspring.cli", "mainspring.sdk"])
def test_no_file_imports_one_that_imports_it(package: str) -> None:
    """Also where an import is inside a function. import-linter compares packages; here each file counts."""
    graph = grimp.build_graph("mainspring")
    left = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules if name.startswith(package)}
    while True:
        free = {name for name, imported in left.items() if not imported & left.keys()}
        if not free:
            break
        left = {name: imported for name, imported in left.items() if name not in free}
    assert sorted(left) == [], "these are in a cycle, or import one"


def test_a_verb_that_looks_loads_no_server() -> None:
    """Nothing listens on port 1, so the command fails after it has imported everything it needs."""
    call = "from mainspring.cli.main import main; assert main(['jobs', '--url', 'http://127.0.0.1:1']) == 6"
    assert not packages(loaded_by(call)) & (_SERVER_ONLY | {"uvloop"})


def test_http_tasks_are_loaded_with_the_first_of_them() -> None:
    code = """
from mainspring.kinds.http.address_guard import AddressGuard
from mainspring.kinds.http.executor import HttpOnDemand
executor = HttpOnDemand(AddressGuard())
executor.kill_all()
(execute,) = executor.offers().values()
assert "httpx" not in sys.modules
execute(None).close()
assert "httpx" in sys.modules
"""
    loaded_by(code)


def test_the_watchdog_loads_the_standard_library_alone() -> None:
    """The watchdog runs without site-packages; see worker/processes/watchdog."""
    code = "import sys; sys.path.append(sys.argv[1]); import watchdog.program; print(*sys.modules)"
    argv = [sys.executable, "-I", "-S", "-c", code, str(Path(worker.__file__).parent / "processes")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert packages(done.stdout.split()) - sys.stdlib_module_names == {"watchdog", "__main__"}
