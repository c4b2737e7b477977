"""An application that writes into a ledger when it works on which account."""

from __future__ import annotations

import asyncio
import json
import os
import time

from mainspring import Context, Mainspring

LEDGER_VARIABLE = "ACCOUNTS_LEDGER"

app = Mainspring()


@app.task
async def post(account: int, ctx: Context) -> None:
    """Work on an account for a moment, in which others could get in its way."""
    _write(account, ctx, "start")
    try:
        await asyncio.sleep(0.01)
    finally:
        _write(account, ctx, "end")


def _write(account: int, ctx: Context, what: str) -> None:
    """One line in one write: lines of several processes do not mix."""
    line = json.dumps([account, ctx.run_id, ctx.attempt, os.getpid(), what, time.monotonic()])
    handle = os.open(os.environ[LEDGER_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode() + b"\n")
    finally:
        os.close(handle)
