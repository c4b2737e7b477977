"""An application whose tasks submit jobs, for `mainspring up --app`."""

from __future__ import annotations

from mainspring import Mainspring

app = Mainspring()


@app.task
def child() -> str:
    return "submitted by a task"


@app.task
def parent() -> str:
    return child.submit().job_id


@app.task(executor="process")
def parent_in_a_process() -> str:
    return child.submit().job_id


@app.cron("0 3 1 1 *")
@app.task
def yearly() -> None: ...
