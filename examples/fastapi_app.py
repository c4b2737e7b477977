"""A web application that hands its slow work to Mainspring. It needs fastapi and uvicorn.

Start a server, the worker and the site, each from the root of the repository:

    mainspring up
    mainspring worker --app examples.fastapi_app:tasks
    uvicorn examples.fastapi_app:web

Then place an order:

    curl localhost:8000/orders -H 'content-type: application/json' -d '{"order": 7, "address": "ada@example.com"}'
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from mainspring import Context, Mainspring, NotFound, Unavailable

tasks = Mainspring()


@tasks.task("receipts.send", retries=5, timeout="1m")
async def send_receipt(ctx: Context, order: int, address: str) -> dict[str, Any]:
    """A placeholder for slow work: rendering a document, calling a mail service."""
    ctx.progress(0.5, "rendering")
    await asyncio.sleep(0.05)
    # Pass this key to a service that deduplicates. Every attempt for this order has the same key.
    return {"order": order, "sent_to": address, "key": ctx.idempotency_key}


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    await tasks.async_client.close()


web = FastAPI(title="A shop", lifespan=lifespan)


class Order(BaseModel):
    order: int
    address: str


@web.post("/orders", status_code=202)
async def place_order(order: Order, idempotency_key: Annotated[str | None, Header()] = None) -> dict[str, str]:
    """Answers at once. A worker sends the receipt. A client that repeats its request sends the same Idempotency-Key."""
    handle = await send_receipt.submit_async(
        order=order.order, address=order.address, idempotency_key=idempotency_key or f"receipt-{order.order}"
    )
    return {"job_id": handle.job_id, "status": f"/receipts/{handle.job_id}"}


@web.get("/receipts/{job_id}")
async def receipt(job_id: str) -> dict[str, Any]:
    try:
        run = (await tasks.async_client.job_status(job_id)).latest_run
    except NotFound:
        raise HTTPException(404, f"there is no receipt {job_id}") from None
    if run is None:
        return {"status": "SCHEDULED"}
    return {"status": run.status, "attempt": run.attempt_number, "result": run.result, "error": run.error_message}


@web.exception_handler(Unavailable)
async def mainspring_is_away(_: Request, error: Unavailable) -> JSONResponse:
    return JSONResponse({"detail": error.detail}, status_code=503, headers={"Retry-After": str(error.retry_after)})
