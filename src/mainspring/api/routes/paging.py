"""Parameters of lists. Pages are keyset pages: the Link header has the URL of the next page."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlencode

from litestar import Request

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.request import parse_time

DEFAULT_PAGE = 50
ListView = Literal["full", "row"]
MAX_PAGE = 1000
MAX_GENERATION = 2**31 - 1


def link_header(request: Request[Any, Any, Any], cursor: str | None) -> dict[str, str]:
    if cursor is None:
        return {}
    parameters = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    address = f"{request.url.path}?{urlencode([*parameters, ('cursor', cursor)])}"
    return {"Link": f'<{address}>; rel="next"'}


def several(values: list[str] | None, field: str = "status") -> list[str]:
    """`?status=a&status=b` and `?status=a,b` mean the same."""
    found = [part.strip() for value in values or [] for part in value.split(",")]
    if "" in found:
        raise InvalidInput(f"{field} is empty", code="invalid_parameter", field=field, hint="leave it out, or name one")
    return found


def label_filter(text: str | None) -> tuple[str, str] | None:
    """`label=team:bi` and `label=team=bi` mean the same."""
    if text is None:
        return None
    for separator in (":", "="):
        name, found, value = text.partition(separator)
        if found and name:
            return name, value
    raise InvalidInput("a label filter needs a name and a value", field="label", expected="label=team:bi")


def time_filter(text: str | None, name: str) -> datetime | None:
    return None if text is None else parse_time(text, name)
