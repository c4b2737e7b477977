"""Searches that end before their end: a server looks for matches for a while, and then says how far it has looked. A
client goes on until the page is full or the search is over, so an empty page means that there is nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from mainspring.sdk.client.core import Call, following

_DEFAULT_PAGE = 50
Progress = Callable[[datetime, int], None]  # how far it has looked back, and how many it has found


class SearchPage(Protocol):
    next: str | None
    searched_to: datetime | None


PageT = TypeVar("PageT", bound=SearchPage)


def search(call: Call[PageT], progress: Progress | None = None) -> Generator[Call[PageT], PageT, PageT]:
    """Yields the calls of a search, takes their pages, and returns one page with all that they have."""
    wanted = int(dict(call.params).get("limit", _DEFAULT_PAGE))
    page = yield call
    found = _rows(page)
    while page.searched_to is not None and len(found) < wanted:
        following_call = following(call, page)
        if following_call is None:
            break
        if progress is not None:
            progress(page.searched_to, len(found))
        kept = tuple(pair for pair in following_call.params if pair[0] != "limit")
        more = yield replace(following_call, params=(*kept, ("limit", str(wanted - len(found)))))
        found += _rows(more)
        page.next, page.searched_to = more.next, more.searched_to
    page.searched_to = None if len(found) >= wanted else page.searched_to
    return page


def _rows(page: Any) -> list[Any]:
    """The list of a page, to which more is added."""
    rows: list[Any] = getattr(page, page.__struct_fields__[0])
    return rows
