"""The Litestar app: routes, gate, errors, OpenAPI."""

from __future__ import annotations

from copy import copy
from functools import cache

from litestar import Litestar
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.middleware import DefineMiddleware
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin

from mainspring.api import errors
from mainspring.api.auth import Admission, AuthenticationMiddleware
from mainspring.api.handlers import check_routes
from mainspring.api.hot_routes import answer_directly
from mainspring.api.large_answers import LargeAnswers
from mainspring.api.large_bodies import LargeBodies
from mainspring.api.routes import (
    access,
    applications,
    approvals,
    audit,
    backfills,
    breakers,
    calendars,
    callbacks,
    channels,
    dead_letters,
    events,
    exchange,
    files,
    health,
    ids,
    insights,
    jobs,
    limits,
    logs,
    metrics,
    missed_fires,
    notifications,
    operations,
    own_user,
    providers,
    queues,
    quotas,
    rules,
    runs,
    schedules,
    schema,
    search,
    secrets,
    session,
    stream,
    tasks,
    users,
    views,
    workers,
    workflow_runs,
    workflows,
)
from mainspring.api.routing import complete_routing
from mainspring.api.services import Services
from mainspring.api.store_outage import OpenRequests, StoreOutageGuard
from mainspring.domain.errors import MainspringError
from mainspring.kernel.config import MAX_JOB_BYTES
from mainspring.store.pulse import Pulse

HOT = ("/v1/exchange", "/v1/exchange/logs", "/v1/jobs", "/v1/jobs:batch")


class HttpApplication(Litestar):
    """Litestar without its plugins for pydantic and attrs, which it adds wherever these are installed: they load for
    up to 0.1 s of CPU at a start, and our messages are structs."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def create_app(services: Services, admission: Admission, pulse: Pulse, share: int = 1) -> Litestar:
    """The app of one server. What belongs to the server is in its state. `share`: how many processes divide what the
    server may use."""
    app = copy(app_without_a_server())
    app.state = State(
        {
            "services": services,
            "admission": admission,
            "open_requests": OpenRequests(pulse),
            "large_bodies": LargeBodies(share),
            "large_answers": LargeAnswers(share),
        }
    )
    return app


@cache
def app_without_a_server() -> Litestar:
    """The routes are registered once for each process: that takes 80 ms of CPU."""
    app = HttpApplication(
        route_handlers=[
            *jobs.job_routers(),
            jobs.create_jobs,
            jobs.check_job,
            applications.declare_schedules,
            *files.HANDLERS,
            *runs.HANDLERS,
            *dead_letters.HANDLERS,
            *operations.HANDLERS,
            *missed_fires.HANDLERS,
            *queues.HANDLERS,
            *quotas.HANDLERS,
            *limits.HANDLERS,
            *calendars.HANDLERS,
            *secrets.HANDLERS,
            *events.HANDLERS,
            *views.HANDLERS,
            *channels.HANDLERS,
            *rules.HANDLERS,
            *notifications.HANDLERS,
            *workers.HANDLERS,
            *backfills.HANDLERS,
            *breakers.HANDLERS,
            *workflows.HANDLERS,
            *workflow_runs.HANDLERS,
            *approvals.HANDLERS,
            *callbacks.HANDLERS,
            tasks.list_tasks,
            *schedules.HANDLERS,
            *insights.HANDLERS,
            ids.find_ids,
            *exchange.HANDLERS,
            *logs.HANDLERS,
            *access.HANDLERS,
            *audit.HANDLERS,
            *session.HANDLERS,
            *providers.HANDLERS,
            *users.HANDLERS,
            *own_user.HANDLERS,
            *search.HANDLERS,
            stream.get_stream,
            health.check_health,
            health.check_readiness,
            metrics.get_metrics,
            schema.get_openapi,
        ],
        middleware=[DefineMiddleware(StoreOutageGuard), DefineMiddleware(AuthenticationMiddleware)],
        exception_handlers={
            MainspringError: errors.on_mainspring_error,
            HTTPException: errors.on_http_error,
            Exception: errors.on_other_error,
        },
        openapi_config=None,
        request_max_body_size=MAX_JOB_BYTES,
        debug=False,
        logging_config=None,
    )
    check_routes(app)
    complete_routing(app)
    answer_directly(app, HOT)
    return app
