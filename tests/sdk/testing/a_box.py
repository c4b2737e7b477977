"""Boxes for tests. They start at the beginning of 2026."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import mainspring.testing
from mainspring import Mainspring
from mainspring.testing import Box

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def boxed(app: Mainspring, **settings: Any) -> Box:
    return mainspring.testing.run(app, start=BEGIN, **settings)


def app_that(function: Any, **options: Any) -> tuple[Mainspring, Any]:
    app = Mainspring()
    return app, app.task("task", **options)(function)


def always(words: str) -> Any:
    def fails() -> None:
        raise ValueError(words)

    return fails
