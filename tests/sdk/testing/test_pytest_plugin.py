"""The fixture in a separate pytest process, as users of the package run it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

PLUGIN = "mainspring.sdk.pytest_plugin"

TESTS = """
from mainspring import Context, Mainspring

app = Mainspring()


@app.cron("0 9 * * MON-FRI")
@app.task
def report(ctx: Context) -> str:
    return f"{ctx.scheduled_for:%a}"


def test_the_report_runs_on_weekdays(mainspring_box):
    box = mainspring_box(app, start="2026-01-01T00:00:00Z")
    box.advance("7d")
    assert [run.result for run in box.runs_of(report)] == ["Thu", "Fri", "Mon", "Tue", "Wed"]


def test_the_box_of_another_test_is_closed():
    assert app._instead is None


def test_a_box_with_settings(mainspring_box):
    assert mainspring_box(app, start="2027-01-01T00:00:00Z", seed=7, raise_errors=True).now.year == 2027
"""

SHOP = """
from mainspring import Mainspring

app = Mainspring()


@app.task("orders.charge")
def charge(account: str, cents: int) -> dict[str, int]:
    return {account: cents}


@app.task("orders.bill")
async def bill(accounts: list[str]) -> int:
    return len([await charge.submit_async(account=one, cents=1) for one in accounts])


@app.cron("@yearly")
@app.task("orders.count")
def count() -> None: ...


order = app.workflow("order")
order.step(charge, account="a1", cents=5)
"""
SERVER_TESTS = """
import pytest
from mainspring import Mainspring
from shop import app, bill, charge, order


def test_tasks_workflows_and_limits_are_real(mainspring_server):
    server = mainspring_server(app)
    assert order.run().wait(60).status == "SUCCESS"  # the worker has created it
    assert server.client.job("orders.count").declared_by == app.name
    once = charge.options(unique={"by": ["payload.account"]})
    assert once.submit(account="a1", cents=3).result(timeout=60) == {"a1": 3}
    assert bill.submit(accounts=["a", "b"]).result(timeout=60) == 2
    [worker] = server.client.workers().workers
    assert {"orders.bill", "orders.charge"} <= set(worker.tasks)


def test_the_processes_are_shared_and_the_application_is_free_after_a_test(mainspring_server):
    assert app._instead is None
    with_string = mainspring_server("shop:app")
    assert len(with_string.client.workers().workers) == 1


def test_an_application_that_no_worker_can_import_is_refused(mainspring_server):
    hidden = [Mainspring()]
    with pytest.raises(ValueError, match="assign it to a variable of a module"):
        mainspring_server(hidden[0])
"""


def run_pytest(folder: Path) -> str:
    """Run the tests in `folder` in a separate pytest process with only our plugin."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN, str(folder)]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(folder)}
    done = subprocess.run(command, env=alone, cwd=folder, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def command_lines() -> Iterator[bytes]:
    """Of all processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


def test_the_fixture_gives_boxes_and_closes_them(tmp_path: Path) -> None:
    (tmp_path / "test_app.py").write_text(TESTS)
    assert "3 passed" in (said := run_pytest(tmp_path)), said


@pytest.mark.slow
def test_the_fixture_gives_a_real_server_and_ends_it(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text(SERVER_TESTS)
    assert "3 passed" in (said := run_pytest(tmp_path)), said
    assert not [one for one in command_lines() if os.fsencode(tmp_path) in one]


def test_pytest_finds_the_plugin_by_itself() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"mainspring": PLUGIN}


def test_the_plugin_loads_nothing_before_it_is_used() -> None:
    code = f"import sys, {PLUGIN}; print(sorted({{'httpx', 'msgspec', 'mainspring.sdk.app.app'}} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_the_box_does_not_need_pytest_nor_a_server() -> None:
    unwanted = {"pytest", "asyncpg", "mainspring.store", "mainspring.operations"}
    code = f"import sys, mainspring.testing; print(sorted({unwanted!r} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
