"""`mainspring job edit`: by options, or in an editor."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sdk.wire_samples import job, problem

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kept(server: CannedServer) -> CannedServer:
    server.says("GET /v1/jobs/report", job(owner="bi", payload={"region": "eu"}, version=7))
    server.says("PATCH /v1/jobs/report", job(version=8))
    return server


@pytest.fixture
def editing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets an editor: a Python program that changes `job`, or the `text` itself."""

    def use(program: str) -> None:
        script = tmp_path / "editor.py"
        script.write_text(
            "import json, pathlib, sys\nfile = pathlib.Path(sys.argv[1])\ntext = file.read_text()\n"
            f"job = json.loads(text)\n{program}\nfile.write_text(text or json.dumps(job))\n"
        )
        monkeypatch.setenv("VISUAL", shlex.join([sys.executable, str(script)]))

    return use


def test_options_change_only_what_they_name(kept: CannedServer, call: Call) -> None:
    args = ("--cron", "0 8 * * *", "--timezone", "Europe/Berlin", "--retries", "0", "--payload", "{}")
    assert call("edit", "report", *args, "--clear", "owner") == (0, "job report is changed, version 8\n", "")
    assert kept.asked[-1][2] == {
        "schedule": {"cron": "0 8 * * *", "timezone": "Europe/Berlin"},
        "retries": 0,
        "payload": {},
        "owner": None,
    }


def test_another_rule_keeps_the_rest_of_the_schedule(kept: CannedServer, call: Call) -> None:
    kept.says(
        "GET /v1/jobs/report",
        job(version=7, timezone="Europe/Berlin", calendar="c", outside="next", jitter=60.0, max_runs=5,
            dst={"gap": "skip"}),
    )  # fmt: skip
    both = {"jitter": "1m", "max_runs": 5, "calendar": "c", "outside": "next", "timezone": "Europe/Berlin"}
    for options, schedule in (
        (("--cron", "0 8 * * *"), {"cron": "0 8 * * *", "dst": {"gap": "skip"}, **both}),
        (("--every", "2h", "--jitter", "5m"), {"every": "2h", **both, "jitter": "5m"}),
        (("--rrule", "FREQ=DAILY", "--clear", "jitter"), {"rrule": "FREQ=DAILY", "dst": {"gap": "skip"}, **both}),
        (("--every", "2h", "--clear", "calendar"), {"every": "2h", "jitter": "1m", "max_runs": 5}),
    ):
        assert call("edit", "report", *options)[0] == 0
        cleared = options[-1] if "--clear" in options else None
        assert kept.asked[-1][2] == {"schedule": {name: schedule[name] for name in schedule if name != cleared}}
    call("edit", "report", "--jitter", "2m", "--clear", "end", "--dst-gap", "shift")
    assert kept.asked[-1][2] == {"schedule": {"jitter": "2m", "end": None, "dst": {"gap": "shift"}}}


def test_an_editor_shows_the_job_as_a_request_and_sends_the_difference(
    kept: CannedServer, call: Call, editing: Callable[[str], None]
) -> None:
    editing("assert job['schedule'] == {'cron': '0 0 * * *', 'timezone': 'UTC'}\ntext = None\n"
            "job['schedule']['cron'] = '@hourly'\njob['payload']['region'] = 'us'\ndel job['owner']")  # fmt: skip
    code, out, err = call("edit", "report", "--json")
    assert (code, err) == (0, "") and json.loads(out)["version"] == 8
    assert kept.asked[-1][2] == {
        "schedule": {"cron": "@hourly", "timezone": "UTC"},
        "payload": {"region": "us"},
        "owner": None,
    }


def test_what_is_not_changed_is_not_sent(kept: CannedServer, call: Call, editing: Callable[[str], None]) -> None:
    editing("")
    assert call("edit", "report") == (0, "", "nothing was changed\n")
    assert [asked[0] for asked in kept.asked] == ["GET /v1/jobs/report"]


def test_a_text_that_is_no_json_or_an_editor_that_fails_changes_nothing(
    kept: CannedServer, call: Call, editing: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    editing("text = '{'")
    code, out, err = call("edit", "report")
    assert code != 0 and out == "" and "this is not JSON: " in err
    [kept_in] = re.findall(r"your text is in (\S+/report.json)", err)
    assert Path(kept_in).read_text() == "{"
    shutil.rmtree(Path(kept_in).parent)
    monkeypatch.setenv("VISUAL", "false")
    code, _, err = call("edit", "report")
    assert code == 2 and "the editor ended with exit code 1; nothing was changed" in err
    monkeypatch.setenv("VISUAL", "/no/such/editor")
    code, _, err = call("edit", "report")
    assert code == 2 and "could not be started" in err
    assert all(asked[0].startswith("GET") for asked in kept.asked)


def test_a_change_that_somebody_else_made_meanwhile_is_not_overwritten(
    kept: CannedServer, call: Call, editing: Callable[[str], None]
) -> None:
    editing("text = None\njob['owner'] = 'ops'")
    kept.says("PATCH /v1/jobs/report", problem(412, "version_mismatch", "the job has version 8"), status=412)
    code, _, err = call("edit", "report")
    assert code == 4 and "the job has version 8" in err and "If-Match" not in err
    [kept_in] = re.findall(r"your text is in (\S+/report.json);", err)
    assert json.loads(Path(kept_in).read_text())["owner"] == "ops"
    assert Path(kept_in).parent.stat().st_mode & 0o077 == 0
    shutil.rmtree(Path(kept_in).parent)
