"""Uses the generated Python client."""

import importlib
import os
import pkgutil

import mainspring_client
from mainspring_client import AuthenticatedClient
from mainspring_client.api.health import get_metrics
from mainspring_client.api.jobs import cancel_job, create_job, get_job, list_jobs, pause_job, run_job_now
from mainspring_client.api.runs import cancel_run, get_run
from mainspring_client.models import JobCreated, JobRequest, JobState, JobView, Problem, RunState, RunView

for module in pkgutil.walk_packages(mainspring_client.__path__, "mainspring_client."):
    importlib.import_module(module.name)

client = AuthenticatedClient(os.environ["MAINSPRING_URL"], os.environ["MAINSPRING_TOKEN"])

made = create_job.sync(client=client, body=JobRequest(job_id="py", task="nobody", cron="0 9 * * MON-FRI", timeout="5m"))
assert isinstance(made, JobCreated) and made.job_id == "py", made
refused = create_job.sync_detailed(client=client, body=JobRequest(task="nobody", cron="61 * * * *"))
assert refused.status_code == 422, refused
assert isinstance(refused.parsed, Problem) and refused.parsed.code == "invalid_cron"

paused = pause_job.sync("py", client=client)
assert isinstance(paused, JobView) and paused.status == JobState.PAUSED
page = list_jobs.sync(client=client, limit=10)
assert page is not None and [job.job_id for job in page.jobs] == ["py"]
ran = run_job_now.sync("py", client=client)
run = get_run.sync(ran.run_id, client=client)
assert isinstance(run, RunView) and run.status == RunState.QUEUED
assert cancel_run.sync(ran.run_id, client=client).status == RunState.CANCELLED
assert cancel_job.sync("py", client=client).status == JobState.CANCELLED
assert get_job.sync_detailed("absent", client=client).parsed.code == "not_found"
assert "mainspring_workers" in get_metrics.sync_detailed(client=client).content.decode()
