"""The recipes of docs/middleware.md, with a transport of Sentry that keeps what it gets, and a database in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

import mainspring.testing


class Kept(Transport):
    """Keeps events instead of sending them."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.events += [event for event in [envelope.get_event()] if event is not None]


def test_sentry_gets_the_error_of_the_last_attempt_with_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    from examples import sentry_app

    kept = Kept()
    init = sentry_sdk.init
    # Without integrations, which change other libraries for the whole process.
    options: dict[str, Any] = {"dsn": "http://key@localhost/1", "transport": kept, "default_integrations": False}
    monkeypatch.setattr(sentry_sdk, "init", lambda: init(**options))
    try:
        with mainspring.testing.run(sentry_app.app) as box:
            handle = sentry_app.charge.submit(account="ada")
            box.run_pending()
            assert kept.events == [] and handle.status() == "SCHEDULED"
            box.advance("1h")
            assert handle.status() == "FAILED"
        [event] = kept.events
        assert event["exception"]["values"][-1]["value"] == "the bank of ada does not answer"
        assert event["contexts"]["job"]["job_id"] == handle.job_id and event["transaction"] == "charge"
    finally:
        sentry_sdk.get_global_scope().set_client(None)


def test_a_session_is_committed_with_the_attempt_or_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy import create_engine, select
    from sqlalchemy.orm import Session

    from examples import sessions_app

    engine = create_engine(f"sqlite:///{tmp_path}/shop")
    monkeypatch.setattr(sessions_app, "engine", engine)
    sessions_app.Base.metadata.create_all(engine)
    with mainspring.testing.run(sessions_app.app) as box:
        sessions_app.store.submit(name="kept")
        sessions_app.store.submit(name="lost", good=False)
        box.run_pending()
    with Session(engine) as session:
        assert list(session.scalars(select(sessions_app.Order.name))) == ["kept"]
    engine.dispose()
