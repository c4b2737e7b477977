"""Errors of tasks go to Sentry, with the job, the run and the attempt: `pip install sentry-sdk`."""

from __future__ import annotations

from collections.abc import Generator

import sentry_sdk

from mainspring import Context, Mainspring, Retry, Snooze

app = Mainspring("shop")


@app.on_worker_start
def begin() -> None:
    sentry_sdk.init()  # the environment variable SENTRY_DSN says where to


@app.middleware
def to_sentry(ctx: Context) -> Generator[None, None, None]:
    with sentry_sdk.isolation_scope() as scope:
        scope.set_transaction_name(ctx.task)
        scope.set_context("job", {"job_id": ctx.job_id, "run_id": ctx.run_id, "attempt": ctx.attempt})
        try:
            yield
        except (Retry, Snooze):  # what a task wishes is no error
            raise
        except Exception as error:
            if ctx.attempt == ctx.max_attempts:  # the run fails for good
                sentry_sdk.capture_exception(error)
            raise


@app.task(retries=1)
async def charge(account: str) -> None:
    raise ConnectionError(f"the bank of {account} does not answer")
