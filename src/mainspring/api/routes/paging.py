"""Keyset pagination. The Link header has the URL of the next page."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from litestar import Request

from mainspring.domain.errors import InvalidInput

DEFAULT_PAGE = 50
MAX_PAGE = 1000


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
        raise InvalidInput(f"{field} is empty", field=field, hint="leave it out, or name one")
    return found
