"""A program that runs with an edited copy of wire/fields.py and prints what the rest of the package does with it.

python -m tests.operations.new_field <path of the edited file>
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any


def put_in_place(path: str) -> None:
    """Load the edited file under the name of the table, before another module imports it."""
    name = "mainspring.wire.fields"
    assert name not in sys.modules
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def intake() -> dict[str, Any]:
    from mainspring.domain.errors import InvalidInput
    from mainspring.domain.job import plain_values, spec_from_text, spec_to_text
    from tests.domain.requests_as_sent import amended, defined

    def refusal(**given: Any) -> tuple[str | None, str, str | None]:
        try:
            defined({"task": "t", **given})
        except InvalidInput as error:
            return error.field, error.detail, error.expected
        raise AssertionError(f"{given} was taken")

    job = defined({"task": "t", "schedule": "manual", "probe_in": "5m", "probe_count": 3, "probe_word": "a b"})
    text = spec_to_text(job.spec)
    changed = amended(job, {"probe_in": "10m", "probe_count": None})
    return {
        "stored": json.loads(text or ""),
        "read again": spec_from_text(text) == job.spec,
        "changed": plain_values(changed.spec),
        "kept by other changes": amended(job, {"queue": "q"}).spec == job.spec,
        "refused": [
            refusal(probe_in="soon"), refusal(probe_in="8d"), refusal(probe_count=0), refusal(probe_word=""),
            refusal(probe_word="x" * 21), refusal(probe_word="a\nb"),
        ],
    }  # fmt: skip


def options_and_keywords() -> dict[str, Any]:
    import mainspring.testing
    from mainspring import Mainspring
    from mainspring.sdk.client.job_fields import OPTION_NAMES

    app = Mainspring()
    task: Any = app.task("known", probe_in=timedelta(minutes=5), probe_word="w")(lambda: None)
    with mainspring.testing.run(app) as box:

        def shown(**given: Any) -> list[Any]:
            job: Any = box.client.job(box.client.submit(schedule="manual", **given).job_id)
            return [job.probe_in, job.probe_count, job.probe_word]

        made = box.client.submit(task="known", schedule="manual")
        updated: Any = box.client.update_job(made.job_id, probe_in="7m", probe_count=9)
        back: Any = box.client.update_job(made.job_id, probe_in=None)
        return {
            "declared": [task.declared_options.probe_in, task.declared_options.probe_word],
            "by keyword": shown(task="other", probe_in=timedelta(minutes=1), probe_count=2),
            "by the task": shown(task="known"),
            "own words win": shown(task="known", probe_in="1s"),
            "updated": [updated.probe_in, updated.probe_count],
            "back to the task's": back.probe_in,
            "an option of a task": "probe_in" in OPTION_NAMES,
        }


def command_line() -> dict[str, Any]:
    from mainspring.cli.main import main
    from tests.cli.conftest import CannedServer
    from tests.sdk.wire_samples import problem

    def shown(call: Callable[[], int]) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert call() == 0
        return out.getvalue()

    server = CannedServer()
    server.says("POST /v1/jobs", {"job_id": "j1"}, status=201)
    options = {"probe_in": 90.0, "timeout": 60.0}
    server.says("GET /v1/tasks", {"tasks": [{"task": "t", "queues": ["q"], "workers": 1, "options": options}]})
    server.start()
    os.environ.update(MAINSPRING_URL=server.url, MAINSPRING_TOKEN="secret", COLUMNS="200")
    try:
        helped = shown(lambda: main(["submit", "--help"]))
        shown(lambda: main(["submit", "t", "--probe-in", "90s", "--probe-count", "4", "--probe-word", "w"]))
        edit = shown(lambda: main(["job", "edit", "--help"]))
        server.says("PATCH /v1/jobs/j1", problem(409, "conflict"), status=409)
        assert main(["job", "edit", "j1", "--probe-count", "5"]) == 4
        tasks = shown(lambda: main(["task", "list"]))
    finally:
        server.stop()
    body = server.asked[0][2]
    [changes] = [change for route, _, change in server.asked if route == "PATCH /v1/jobs/j1"]
    return {
        "help": [line.strip(" │").split() for line in helped.splitlines() if "--probe" in line],
        "sent": {name: value for name, value in body.items() if name.startswith("probe")},
        "changed": changes,
        "edited": [option for option in ("--probe-in", "--probe-count", "--probe-word") if option in edit],
        "tasks": "probe_in=1m30s" in tasks,
    }


def routines() -> str:
    from mainspring.store.routine_loader import read_routines

    return read_routines()


if __name__ == "__main__":
    put_in_place(sys.argv[1])
    parts: tuple[Callable[[], Any], ...] = (intake, options_and_keywords, command_line, routines)
    found = {part.__name__: part() for part in parts}
    sys.stdout.write(json.dumps(found))
