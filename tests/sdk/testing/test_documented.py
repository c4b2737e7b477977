"""The examples of docs/testing.md, docs/workflows.md and docs/exactly-once.md run and pass."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import mainspring.testing
from tests.sdk.testing.test_pytest_plugin import run_pytest
from tests.sources import parsed

DOCS = Path(__file__).parents[3] / "docs"
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[str]:
    return _PYTHON.findall((DOCS / page).read_text())


@pytest.mark.slow
def test_the_tests_of_the_testing_page_pass(tmp_path: Path) -> None:
    application, tests, *fixtures = blocks("testing.md")
    (tmp_path / "shop.py").write_text(application)
    (tmp_path / "test_shop.py").write_text("\n\n".join([tests, *fixtures]))
    assert "7 passed" in (said := run_pytest(tmp_path)), said


@pytest.mark.slow
def test_the_workflow_of_the_workflows_page_and_its_test_pass(tmp_path: Path) -> None:
    application, batch, test = blocks("workflows.md")
    (tmp_path / "shop.py").write_text(application)
    (tmp_path / "test_shop.py").write_text(
        f"from shop import app, nightly, report, reported, sum_up\n\n{batch}\n\n{test}"
    )
    assert "1 passed" in (said := run_pytest(tmp_path)), said


@pytest.mark.slow
def test_the_example_runs_in_python_and_in_yaml(mainspring_server: Any) -> None:
    from examples.nightly import app, nightly, reported
    from mainspring.cli.workflow_file import read_workflows

    [body] = read_workflows(str(DOCS.parent / "examples" / "nightly.yaml"))
    client = mainspring_server(app).client
    assert nightly.run(region="us").result(reported, timeout=60) == "us: 6021 cents on 3 days"
    client.create_workflow(body)
    assert client.run_workflow("nightly-yaml").result("report", timeout=60) == "eu: 6000 cents on 3 days"
    failed = client.run_workflow("nightly-yaml", {"region": "EU"})
    assert (failed.wait(60).status, failed.view().reason) == ("FAILED", "step extract failed")
    body["steps"][0]["payload"]["region"] = "eu"  # mended
    client.replace_workflow("nightly-yaml", body)
    assert failed.rerun(definition="current").reruns == 1
    assert failed.result("report", timeout=60) == "eu: 6000 cents on 3 days"


def test_the_charge_of_the_exactly_once_page_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger.db"))
    ledger = sqlite3.connect(os.environ["LEDGER"])
    ledger.execute("create table charges (account text, cents integer check (cents > 0))")
    page: dict[str, object] = {}
    exec(compile(blocks("exactly-once.md")[0], "exactly-once.md", "exec"), page)
    app = page["app"]
    assert isinstance(app, mainspring.Mainspring)
    with mainspring.testing.run(app) as box:
        charge = app.tasks["charge"]
        assert charge.submit(account="a1", cents=1000).result() is True
        charge.submit(account="a1", cents=-5)  # the database rejects it in every attempt
        box.settle()
        [dead] = box.dead_letters
        assert dead.attempt == 6
        again = box.client.replay(dead.run_id, {"account": "a1", "cents": 7})
        assert box.client.handle(dead.job_id, again.run_id).result() is True
        assert mainspring.exactly_once(ledger, again) is False  # a later attempt finds the record
    assert ledger.execute("select * from charges").fetchall() == [("a1", 1000), ("a1", 7)]


@pytest.mark.parametrize("page", ["testing.md", "workflows.md", "exactly-once.md", "recipes.md"])
def test_every_example_is_python(page: str) -> None:
    for block in blocks(page):
        parsed(block)
