"""The Litestar app: routes, gate, errors, OpenAPI."""

from __future__ import annotations

from collections.abc import Iterable

from litestar import Litestar
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.middleware import DefineMiddleware
from litestar.openapi import OpenAPIConfig

from mainspring.api import errors
from mainspring.api.auth import Gate, TokenBook
from mainspring.api.patience import OpenRequests, Patience
from mainspring.api.routes import dead_letters, exchange, health, jobs, logs, metrics, runs, tasks, workers
from mainspring.api.schema import StructSchema
from mainspring.api.services import Services
from mainspring.domain.errors import MainspringError
from mainspring.kernel.config import MAX_BODY_BYTES
from mainspring.kernel.version import VERSION
from mainspring.store.pulse import Pulse


def create_app(services: Services, book: TokenBook, pulse: Pulse, allowed_hosts: Iterable[str]) -> Litestar:
    return Litestar(
        route_handlers=[
            *jobs.job_routers(),
            jobs.create_jobs,
            *runs.HANDLERS,
            *dead_letters.HANDLERS,
            *workers.HANDLERS,
            tasks.list_tasks,
            exchange.exchange,
            *logs.HANDLERS,
            health.healthz,
            health.readyz,
            metrics.metrics,
        ],
        plugins=[StructSchema()],
        middleware=[
            DefineMiddleware(Patience, requests=OpenRequests(pulse)),
            DefineMiddleware(Gate, book=book, allowed_hosts=frozenset(allowed_hosts)),
        ],
        exception_handlers={
            MainspringError: errors.on_mainspring_error,
            HTTPException: errors.on_http_error,
            Exception: errors.on_other_error,
        },
        openapi_config=OpenAPIConfig(
            title="Mainspring",
            version=VERSION,
            description="A distributed job scheduler: every fire time runs once, nothing acknowledged is ever lost.",
            path="/schema",
        ),
        state=State({"services": services}),
        request_max_body_size=MAX_BODY_BYTES,
        debug=False,
        logging_config=None,
    )
