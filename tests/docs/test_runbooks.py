"""Each command and each statement of the runbooks works, in one sitting at a Mainspring that is in trouble."""

from __future__ import annotations

import os
import re
from pathlib import Path

import asyncpg
import pytest

from mainspring.cli.main import main
from mainspring.domain.notify.messages import GOOD, RUNBOOKS, TITLES
from tests.docs.sitting import Step, steps_of
from tests.docs.test_sitting import Sitting
from tests.processes.cluster import free_port

RUNBOOKS_FOLDER = Path(__file__).resolve().parents[2] / "docs" / "runbooks"
PAGES = sorted(path for path in RUNBOOKS_FOLDER.glob("*.md") if path.name != "README.md")
_SQL = re.compile(r"^```sql\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_IN_TROUBLE = """\
mainspring up
mainspring worker --name spare --queues other
mainspring submit --command 'exit 1' --retries 0 --job-id nightly --cron '0 3 * * *' --overlap allow
mainspring job run nightly --wait # exits with 1
mainspring submit --command true --job-id letter --queue mails
mainspring submit --command 'sleep 600' --job-id endless
"""
BESIDE = "mainspring up --data restored"
_FINDINGS = (0, 1, 6)  # what `mainspring doctor` finds depends on the machine


@pytest.mark.slow
def test_every_command_of_the_runbooks_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands that serve are processes; the others run in this one, which saves the start of fifty interpreters."""
    sitting = Sitting(tmp_path, free_port(), "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("MAINSPRING_")]:
        monkeypatch.delenv(name)
    try:
        for number, text in enumerate(_IN_TROUBLE.splitlines(), start=1):
            do_step(sitting, Step(f"in trouble:{number}", text), capsys)
        for page in PAGES:
            steps = list(steps_of(page))
            assert steps, f"{page.name} has no command"
            for step in steps:
                do_step(sitting, step, capsys)
    finally:
        sitting.shell.stop()


def do_step(sitting: Sitting, step: Step, capsys: pytest.CaptureFixture[str]) -> None:
    if step.text.startswith(BESIDE):
        beside(sitting, step)
        return
    if step.serves or not step.text.startswith("mainspring "):
        sitting.do(step)
        return
    # The shell reads quotes, comments and $(...), as it does for the reader.
    code, words = sitting.shell.run(f"printf '%s\\n' {step.text.removeprefix('mainspring ')}")
    assert code == 0, words
    found = main(words.splitlines())
    said = "".join(capsys.readouterr())
    expected = _FINDINGS if step.text == "mainspring doctor" else (step.exit_code,)
    assert found in expected, f"{step.where}: {step.text}\nexit code {found}\n{said}"


def beside(sitting: Sitting, step: Step) -> None:
    """Another installation beside the one in trouble: it comes up, and ends."""
    port = free_port()
    pid = sitting.shell.serve(f"{step.text} --port {port}", sitting.folder / "beside.log")
    url = f"http://127.0.0.1:{port}/readyz"
    code, _ = sitting.shell.run(f"curl -sf --retry 400 --retry-delay 1 --retry-all-errors --max-time 100 {url}")
    sitting.shell.end([pid])
    assert code == 0, f"{step.where}: {(sitting.folder / 'beside.log').read_text()}"


@pytest.mark.anyio
async def test_every_statement_of_the_runbooks_works(connection: asyncpg.Connection) -> None:
    statements = [block for page in PAGES for block in _SQL.findall(page.read_text())]
    assert len(statements) > 5
    for statement in statements:
        async with connection.transaction(readonly=True):
            await connection.fetch(statement)


def test_each_runbook_is_in_the_list_with_its_alerts() -> None:
    index = (RUNBOOKS_FOLDER / "README.md").read_text()
    rules = (RUNBOOKS_FOLDER.parents[1] / "deploy" / "prometheus" / "rules.yml").read_text()
    listed = {
        row[1]: set(re.findall(r"`(\w+)`", row[0])) for row in re.findall(r"(^.*\(([\w-]+\.md)\).*$)", index, re.M)
    }
    assert sorted(listed) == [page.name for page in PAGES]
    alerts = re.findall(r"alert: (\w+).*?runbook: docs/runbooks/([\w-]+\.md)", rules, re.DOTALL)
    assert {name for names in listed.values() for name in names} == {name for name, _ in alerts}
    assert [name for name, page in alerts if name not in listed[page]] == []
    for page in PAGES:
        told = page.read_text()
        assert [name for name in listed[page.name] if f"`{name}`" not in told] == [], page.name


def test_each_event_that_is_told_as_trouble_has_a_runbook() -> None:
    assert set(RUNBOOKS) == set(TITLES) - GOOD
    assert {page for page in RUNBOOKS.values() if not (RUNBOOKS_FOLDER / page).is_file()} == set()
