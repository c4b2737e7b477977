"""The pytest fixture `mainspring_box`. Every pytest run loads this module, so imports happen inside the fixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mainspring.sdk.app.app import Mainspring
    from mainspring.sdk.testing import Box


@pytest.fixture
def mainspring_box() -> Iterator[Callable[..., Box]]:
    """`mainspring_box(app, start="2026-01-01T00:00:00Z")` returns a `mainspring.testing.Box`. It is closed after the
    test.

    The arguments are those of `mainspring.testing.run`.
    """
    with ExitStack() as boxes:

        def opened(app: Mainspring, **settings: Any) -> Box:
            from mainspring.sdk.testing import run

            return boxes.enter_context(run(app, **settings))

        yield opened
