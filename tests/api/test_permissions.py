"""Every route names its operation and the roles that may call it, and every operation takes a Caller."""

from __future__ import annotations

import inspect
from uuid import uuid4

import pytest

from mainspring.api.app import app_without_a_server
from mainspring.api.handlers import DESCRIBE, check_routes, get, permissions_of, routed_handlers
from mainspring.api.routing import RouteTable
from mainspring.domain.errors import Forbidden, NotFound
from mainspring.kernel.ids import DEFAULT_TENANT, EVERY_TENANT, TenantId
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.permissions import ADMINS, READERS, check_permission
from mainspring.roles.assembly import Assembly

# Public methods that no route calls, or that need no token.
_INTERNAL = {
    "Amender": {"publish_resumed"},
    "Callbacks": {"attempt", "take"},
    "ManualRuns": {"publish"},
    "Replayer": {"publish"},
    "Sessions": {"sign_in"},
    "PasswordSignIn": {"sign_in", "accept"},
    "ProviderSignIn": {"providers", "close", "begin", "finish"},
    "Previewer": {"fires", "in_thread"},
    "SignatureRegistry": {"known", "texts", "check", "read", "differs", "declare", "refresh", "run_once"},
    "GaugeServer": {"close"},
    "LogService": {"tail"},
    "Exchanger": {"poll", "close", "forget"},
    "Streams": {"close", "next_id", "run_once"},
    "ExternalStores": {"check", "value", "close"},
}
_SERVICES_WITHOUT_CALLER = {
    "clock", "readiness", "death_notices", "periodic_tasks", "alert_keeper", "notification_sender", "sink_sender",
    "callback_rates",
}  # fmt: skip


def caller(role: str, tenant: TenantId = DEFAULT_TENANT) -> Caller:
    return Caller(tenant, role, "a token", uuid4())


def test_an_operation_with_two_sets_of_roles_cannot_be_routed() -> None:
    @get("/y", operation="jobs.explode", roles=ADMINS)
    async def of_admins() -> None: ...

    @get("/z", operation="jobs.explode", roles=READERS)
    async def of_readers() -> None: ...

    with pytest.raises(RuntimeError, match="has other roles"):
        check_routes(RouteTable([of_admins, of_readers], DESCRIBE))


def test_what_a_role_may_do() -> None:
    for operation, roles in permissions_of(app_without_a_server()).items():
        if not roles:
            # The last ones are proved by a secret.
            assert operation.startswith("health.") or operation in (
                "worker.gone", "session.create", "session.providers", "session.begin", "session.answer", "user.accept",
                "callbacks.take",
            )  # fmt: skip
            continue
        check_permission(caller("admin"), roles)
        for refused in (caller("admin", EVERY_TENANT), caller("viewer", EVERY_TENANT), caller("")):
            with pytest.raises(Forbidden):
                check_permission(refused, roles)
        worker = caller("worker", EVERY_TENANT)
        if operation.startswith("worker."):
            check_permission(worker, roles)
        else:
            with pytest.raises(Forbidden) as refusal:
                check_permission(worker, roles)
            assert refusal.value.code == "worker_token", operation


# What reads under a method of its own, or changes nothing but the session.
_VIEWED = {
    "calendars.preview",
    "schedules.preview", "schedules.explain", "events.test", "jobs.validate", "workflows.validate", "session.read",
    "session.end", "session.link", "user.create_token", "user.password", "user.revoke_token", "user.tenant",
}  # fmt: skip


# The audit has addresses, and what people did. Users have mail addresses.
_READ_BY_ADMINS = {"audit.chain", "audit.list", "users.list", "users.read"}


@pytest.mark.anyio
async def test_a_viewer_may_call_what_reads_and_nothing_that_changes(assembly: Assembly) -> None:
    for _, handler in routed_handlers(assembly.app):
        operation = handler.operation
        if handler.is_public:
            continue
        if (handler.method == "GET" and operation not in _READ_BY_ADMINS) or operation in _VIEWED:
            check_permission(caller("viewer"), handler.roles)
        else:
            with pytest.raises(Forbidden) as refusal:
                check_permission(caller("viewer"), handler.roles)
            assert refusal.value.code == "role_not_allowed"


# What an operator may not do of all that changes something.
_OF_ADMINS = {
    "applications.declare", "audit.chain", "audit.list",
    "calendars.delete", "calendars.put", "channels.delete", "channels.put", "channels.test",
    "events.emit", "events.emit_batch", "sources.take",
    "files.apply", "files.export", "files.plan",
    "rules.delete", "rules.put", "jobs.create", "jobs.create_batch", "jobs.update",
    "secrets.delete", "secrets.put", "secrets.rotate_key",
    "sessions.end", "sinks.delete", "sinks.pause", "sinks.put", "sinks.resume", "sinks.test",
    "tenant.set_log_retention", "tenant.update_limits", "tenants.create", "tenants.set_quotas", "tokens.create",
    "tokens.revoke",
    "users.disable", "users.enable", "users.invite", "users.list", "users.read", "users.remove", "users.reset",
    "users.role", "workflows.create", "workflows.update",
}  # fmt: skip


def test_an_operator_keeps_things_running_and_creates_nothing() -> None:
    permissions = permissions_of(app_without_a_server())
    known = {operation for operation, roles in permissions.items() if roles and not operation.startswith("worker.")}
    refused = {operation for operation in known if "operator" not in permissions[operation]}
    assert refused == _OF_ADMINS


def test_a_metrics_token_reads_metrics_and_the_scaling_signal_alone() -> None:
    permissions = permissions_of(app_without_a_server())
    assert [operation for operation, roles in permissions.items() if "metrics" in roles] == [
        "insights.scaling", "metrics.read"
    ]  # fmt: skip


@pytest.mark.anyio
async def test_the_verb_in_the_path_decides_which_operation_is_called(assembly: Assembly) -> None:
    def called(path: str) -> str:
        return assembly.app.table.find(path, "POST").handler.operation

    for path, operation in (
        ("/v1/jobs/a.b:pause", "jobs.pause"), ("/v1/jobs/a/resume", "jobs.resume"), ("/jobs/a:runNow", "jobs.run_now"),
        ("/v1/jobs/a:run-now", "jobs.run_now"), ("/v1/runs/a:cancel", "runs.cancel"), ("/v1/jobs", "jobs.create"),
        ("/v1/dead-letters:replay", "dead_letters.replay"), ("/v1/dead-letters/a:replay", "dead_letters.replay"),
    ):  # fmt: skip
        assert called(path) == operation, path
    for path in ("/v1/jobs/a:other", "/v1/jobs/:pause", "/v1/jobs/a:cancel", "/v1/runs/a:"):
        with pytest.raises(NotFound):
            called(path)


@pytest.mark.anyio
async def test_every_operation_takes_a_caller(assembly: Assembly) -> None:
    services = vars(assembly.services)
    assert len(services) > 40, "the services are found"
    for field, made in services.items():
        if field in _SERVICES_WITHOUT_CALLER:
            continue
        service = type(made)
        for name, method in inspect.getmembers(service, inspect.isroutine):
            if name.startswith("_") or name in _INTERNAL.get(service.__name__, ()):
                continue
            parameters = list(inspect.signature(method).parameters.values())
            assert parameters[1:] and parameters[1].annotation == "Caller", f"{service.__name__}.{name}"
