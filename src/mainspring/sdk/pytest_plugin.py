"""The fixture `mainspring_box` for pytest. Loaded with every pytest run, so it imports nothing before it is used."""

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
    """`mainspring_box(app, start="2026-01-01T00:00:00Z")` gives a `mainspring.testing.Box`, closed after the test.

    It takes what `mainspring.testing.run` takes.
    """
    with ExitStack() as boxes:

        def opened(app: Mainspring, **settings: Any) -> Box:
            from mainspring.sdk.testing import run

            return boxes.enter_context(run(app, **settings))

        yield opened
