"""The application of a server: all routes, and what belongs to the server."""

from __future__ import annotations

from functools import cache

from mainspring.api.auth import Admission
from mainspring.api.handlers import DESCRIBE, check_routes
from mainspring.api.http_application import HttpApplication, ServerState
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
    log_retention,
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
    sinks,
    sources,
    stream,
    tasks,
    users,
    views,
    workers,
    workflow_runs,
    workflows,
)
from mainspring.api.routing import RouteTable
from mainspring.api.services import Services
from mainspring.api.store_outage import OpenRequests
from mainspring.store.pulse import Pulse


def create_app(services: Services, admission: Admission, pulse: Pulse, share: int = 1) -> HttpApplication:
    """The app of one server. `share`: how many processes divide what the server may use."""
    state = ServerState(services, admission, OpenRequests(pulse), LargeBodies(share), LargeAnswers(share))
    return HttpApplication(app_without_a_server().table, state)


@cache
def app_without_a_server() -> HttpApplication:
    """All routes."""
    table = RouteTable(
        [
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
            *log_retention.HANDLERS,
            *limits.HANDLERS,
            *calendars.HANDLERS,
            *secrets.HANDLERS,
            *events.HANDLERS,
            *sources.HANDLERS,
            *views.HANDLERS,
            *channels.HANDLERS,
            *sinks.HANDLERS,
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
        DESCRIBE,
    )
    check_routes(table)
    return HttpApplication(table)
