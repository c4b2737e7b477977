"""The application of the browser tests."""

from __future__ import annotations

import asyncio

from mainspring import Context, Mainspring

app = Mainspring()


@app.task("shop.charge", retries=0)
def charge(account: str, cents: int) -> dict[str, int]:
    """Fails for one account, so that a replay with another payload succeeds."""
    if account == "broken":
        raise ValueError(f"there is no account {account!r}")
    return {"charged": cents}


@app.task("shop.talk", retries=0)
async def talk(ctx: Context) -> None:
    """Prints until it is cancelled."""
    for number in range(10_000):
        ctx.log(f"\x1b[32mline {number}\x1b[0m <b>bold</b>")
        await asyncio.sleep(0.1)
