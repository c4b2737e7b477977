"""What the test box does not have is refused with one error, which names it and the fixture, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import InvalidBatch, InvalidInput, Mainspring, NotFound, NotSupportedYet
from mainspring.sdk.testing.not_in_box import IGNORABLE
from mainspring.testing import Box, run
from mainspring.wire.fields import FIELDS, Place
from tests.sdk.test_calls import built

USE = "Use the pytest fixture mainspring_server: docs/testing.md"
GIVEN: dict[str, Any] = {
    "concurrency": 3,
    "rate_limit": "5/m",
    "circuit_breaker": {"failures": 2, "open_for": "10m"},
    "unique": {"by": ["task"]},
    "depends_on": ["parent"],
    "after": ["parent"],
    "event": "order.paid",
    "notify": [{"on": ["failure"], "to": ["oncall"]}],
}
SAID = {
    "concurrency": "concurrency limits",
    "rate_limit": "rate limits",
    "circuit_breaker": "circuit breakers",
    "unique": "unique jobs",
    "depends_on": "jobs that depend on jobs",
    "after": "jobs that depend on jobs",
    "event": "events",
    "notify": "notifications",
}
# The calls that no box answers, and the word for each.
CALLS = {
    "approvals": {"approvals", "approve", "reject"},
    "backfills": {"backfills", "cancel_backfill", "change_backfill", "create_backfill", "pause_backfill",
        "read_backfill", "resume_backfill"},
    "bulk operations": {"act_on_many", "cancel_operation", "count_matching", "discard_dead_letters", "operation",
        "operations", "replay_dead_letters"},
    "channels": {"channel", "channels", "delete_channel", "set_channel", "test_channel"},
    "rules of notifications": {"delete_rule", "mute_rule", "rule", "rules", "set_rule", "unmute_rule"},
    "notifications": {"acknowledge_notification", "notification", "notifications", "send_notification"},
    "audit": {"audit", "audit_chain"},
    "events": {"emit", "emit_batch", "emitted_event", "emitted_events", "test_condition"},
    "files": {"apply_files", "export_files", "plan_files"},
    "circuit breakers": {"breakers", "reset_breaker"},
    "declarations": {"declare"},
    "explanations of jobs": {"why_job"},
    "explanations of schedules": {"explain_schedule"},
    "previews of calendars": {"preview_calendar"},
    "insights": {
        "failure_group", "failures", "heatmap", "job_outcomes", "job_series", "overview", "scaling", "upcoming_fires",
    },
    "saved views": {"delete_view", "set_view", "view", "views"},
    "limits": {"limit", "limits", "set_limit"},
    "list of tasks": {"tasks"},
    "list of the missed fires of all jobs": {"missed_fires"},
    "parts of logs": {"log_lines"},
    "pause of all queues": {"pause_all", "resume_all"},
    "previews of schedules": {"preview"},
    "queues": {"pause_queue", "queue", "queues", "resume_queue", "set_queue_limits"},
    "quotas": {"set_quotas", "tenant_usage"},
    "readiness": {"readiness"},
    "search for ids": {"find_ids"},
    "search in logs": {"search_log", "search_logs"},
    "secrets": {"delete_secret", "rotate_secret_key", "secret", "secrets", "set_secret"},
    "sessions": {"end_session", "sessions", "sign_in_link"},
    "settings of the tenant": {"log_retention", "set_log_retention", "set_tenant_limits", "tenant_limits"},
    "sinks": {"delete_sink", "pause_sink", "resume_sink", "set_sink", "sink", "sinks", "test_sink"},
    "sources": {"dead_messages", "delete_source", "sources", "take_messages"},
    "tenants": {"add_tenant", "tenants"},
    "timelines": {"job_timeline", "timeline"},
    "tokens": {"add_token", "revoke_token", "tokens"},
    "users": {"disable_user", "enable_user", "invite_user", "own_user", "remove_user", "reset_password",
        "set_user_role", "user", "users"},
    "workers": {"drain_worker", "worker", "workers"},
    "workflows": {"cancel_workflow_run", "check_workflow", "create_workflow", "delete_workflow", "pause_workflow",
        "replace_workflow", "rerun_workflow", "resume_workflow", "start_workflow", "update_workflow", "workflow",
        "workflow_run", "workflow_runs", "workflow_steps", "workflows"},
}  # fmt: skip


def an_app(**options: Any) -> Mainspring:
    app = Mainspring("refused")

    @app.task(**options)
    def charge(account: int | None = None, event: Any = None) -> int | None:
        return account

    return app


def told(box: Box) -> tuple[Any, ...]:
    """Everything that a refused call must not change."""
    return box.now, [job.version for job in box.client.all_jobs()], len(box.runs)


def test_the_table_of_fields_marks_what_the_box_does_not_have() -> None:
    assert {field.name: field.not_in_box for field in FIELDS if field.not_in_box} == SAID


@pytest.mark.parametrize("field", GIVEN)
def test_a_job_with_such_a_field_is_refused(field: str) -> None:
    with run(an_app()) as box:
        box.client.submit(task="charge", job_id="parent", schedule="manual")
        box.client.submit(task="charge", job_id="child", cron="@hourly")
        before = told(box)
        words = f"The test box has no {SAID[field]} ({field}). {USE}"
        with pytest.raises(NotSupportedYet) as submitted:
            box.client.submit(task="charge", **{field: GIVEN[field]})
        assert (submitted.value.detail, submitted.value.field, submitted.value.code) == (
            words,
            field,
            "not_in_test_box",
        )
        with pytest.raises(InvalidBatch) as batch:
            box.client.submit_batch([{"task": "charge"}, {"task": "charge", field: GIVEN[field]}])
        assert [(one.field, one.detail) for one in batch.value.errors] == [(f"jobs[1].{field}", words)]
        if field != "unique":  # it cannot be changed later
            with pytest.raises(NotSupportedYet) as changed:
                box.client.update_job("child", **{field: GIVEN[field]})
            assert changed.value.detail == words
        assert told(box) == before


@pytest.mark.parametrize("field", [name for name in GIVEN if name in IGNORABLE])
def test_a_field_that_the_task_declares_is_refused_unless_the_test_ignores_it(field: str) -> None:
    app = an_app(**{field: GIVEN[field]})
    with run(app) as box:
        with pytest.raises(NotSupportedYet, match=rf"\({field}\)") as refused:
            app.tasks["charge"].submit(account=1)
        assert refused.value.hint is not None and f'ignore=["{field}"]' in refused.value.hint
        assert box.runs == []
        assert app.tasks["charge"].options(**{field: False}).submit(account=1).result() == 1
    with run(app, ignore=[field]) as box:
        assert app.tasks["charge"].submit(account=1).result() == 1
        assert not getattr(box.client.job(box.runs[0].job_id), field)
        with pytest.raises(InvalidInput):  # it is checked all the same
            box.client.submit(task="charge", **{field: 5 if field != "concurrency" else -1})


def test_a_schedule_of_the_application_with_such_a_field_is_refused_at_the_start() -> None:
    app = an_app(rate="5/m")
    app.cron("@hourly")(app.tasks["charge"])
    with pytest.raises(NotSupportedYet, match=r"rate limits \(rate_limit\)"):
        run(app)
    with run(app, ignore=["rate_limit"]) as box:
        assert len(box.advance("3h")) == 3


def test_a_recurring_job_of_a_unique_task_is_not_unique_and_not_refused() -> None:
    app = an_app(unique={"by": ["task"]})
    app.cron("@hourly")(app.tasks["charge"])
    with run(app) as box:
        assert len(box.advance("3h")) == 3


def test_a_workflow_with_a_schedule_is_refused_at_the_start_and_one_without_when_it_is_run() -> None:
    app = an_app()
    by_hand = app.workflow("by-hand")
    step = by_hand.step(app.tasks["charge"], account=1)
    batch = app.batch("b")
    batch.add(app.tasks["charge"], account=1)
    none = rf"^The test box has no workflows\. {USE}"
    with run(app) as box:
        for ask in (by_hand.run, lambda: box.runs_of(by_hand), lambda: box.runs_of(step), batch.submit):
            with pytest.raises(NotSupportedYet, match=none):
                ask()
        with pytest.raises(NotSupportedYet, match=none):
            box.client.workflow_run_handle("x").wait()
        assert app.tasks["charge"].submit(account=1).result() == 1
    app.workflow("nightly", cron="@daily").step(app.tasks["charge"], account=1)
    with pytest.raises(NotSupportedYet, match=none):
        run(app)
    with run(app, ignore=["workflows"]) as box:
        assert box.advance("3d") == []


def test_a_task_that_events_start_is_refused_at_the_start_unless_the_test_ignores_it() -> None:
    app = an_app()

    @app.on_event("order.paid", if_="payload.total > 100")
    def ship(event: dict[str, Any]) -> str:
        return event["id"]

    with pytest.raises(NotSupportedYet, match=rf"^The test box has no events\. {USE}") as refused:
        run(app)
    assert refused.value.hint is not None and 'ignore=["events"]' in refused.value.hint
    with run(app, ignore=["events"]) as box:
        assert box.advance("3d") == []
        assert ship.submit(event={"id": "evt-1"}).result() == "evt-1"


def test_only_what_an_application_declares_can_be_ignored() -> None:
    declared = {field.name for field in FIELDS if field.not_in_box and Place.TASK_OPTION in field.places}
    assert {*IGNORABLE} == declared | {"workflows", "events"}
    for name in ("depends_on", "timeout", "limits"):
        with pytest.raises(InvalidInput, match=f"{name!r} cannot be ignored"):
            run(an_app(), ignore=[name])


def test_a_call_that_the_box_does_not_answer_says_what_it_does_not_have() -> None:
    said: dict[str, set[str]] = {}
    with run(an_app()) as box:
        for name, call in built().items():
            try:
                box.client.send(call)
            except NotSupportedYet as error:
                said.setdefault(str(error), set()).add(name)
            except NotFound:  # an answer: there is no job x
                pass
        with pytest.raises(NotSupportedYet, match=f"live logs. {USE}"):
            list(box.client.follow_logs("x"))
        with pytest.raises(NotSupportedYet, match=f"live events. {USE}"):
            list(box.client.events("runs"))
    assert said == {f"The test box has no {what}. {USE}": names for what, names in CALLS.items()}


@pytest.mark.anyio
async def test_async_clients_say_the_same() -> None:
    async with run(an_app()) as box:
        with pytest.raises(NotSupportedYet, match=USE):
            await box.async_client.backfill("x", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
        with pytest.raises(NotSupportedYet, match=USE):
            await box.async_client.workflow_run_handle("x").wait()
        with pytest.raises(NotSupportedYet, match=USE):
            box.async_client.events("runs")
