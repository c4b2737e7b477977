"""Public holidays of countries and their subdivisions, from the `holidays` library.

The library takes 0.2 s to import, so only those import it who evaluate a calendar with holidays.
"""

from __future__ import annotations

import warnings
from datetime import date
from functools import lru_cache
from typing import Any

from mainspring.domain.errors import InvalidInput

BLOCK_BITS = 12
_BLOCK = 1 << BLOCK_BITS  # days, eleven years: to start the library takes as long as some years
_CACHED_BLOCKS = 16384
_LAST_DAY = date.max.toordinal()


def _library() -> Any:
    """Raises InvalidInput in an installation without a server, which has no holidays."""
    try:
        import holidays
    except ModuleNotFoundError:
        raise InvalidInput(
            "calendars with holidays need the package holidays, which is not installed", field="holidays",
            hint="pip install 'mainspring[server]'",
        ) from None  # fmt: skip
    return holidays


@lru_cache(maxsize=_CACHED_BLOCKS)
def holiday_block(country: str, subdivision: str | None, block: int) -> int:
    """The holidays among the days (ordinals) from block * 4096 on, as bits. Takes up to 10 ms."""
    holidays = _library()
    start = block << BLOCK_BITS
    years = range(_year(start), _year(start + _BLOCK - 1) + 1)
    with warnings.catch_warnings():  # it warns of years for which it has no dates of some holidays
        warnings.simplefilter("ignore")
        days = holidays.country_holidays(country, subdiv=subdivision, years=years)
    found = 0
    for day in days:
        place = day.toordinal() - start
        if 0 <= place < _BLOCK:
            found |= 1 << place
    return found


@lru_cache(maxsize=1024)
def holiday_names(country: str, subdivision: str | None, year: int) -> dict[date, str]:
    """The names of the holidays of a year, in English where the library has them."""
    holidays = _library()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        languages = holidays.country_holidays(country, subdiv=subdivision).supported_languages
        language = "en_US" if "en_US" in languages else None
        return dict(holidays.country_holidays(country, subdiv=subdivision, years=year, language=language))


def learn_holidays(country: str, subdivision: str | None, first: int, last: int) -> None:
    """Compute the holidays of these days, so that no request has to wait for them later."""
    for block in range(first >> BLOCK_BITS, (last >> BLOCK_BITS) + 1):
        holiday_block(country, subdivision, block)


def _year(day: int) -> int:
    return date.fromordinal(min(max(day, 1), _LAST_DAY)).year


@lru_cache(maxsize=1)
def countries() -> dict[str, list[str]]:
    """The subdivisions of each country that the library knows, by ISO 3166 code."""
    holidays = _library()
    return {code: list(parts) for code, parts in holidays.list_supported_countries(include_aliases=False).items()}


@lru_cache(maxsize=1)
def country_names() -> dict[str, str]:
    """The codes of countries by their names in lower case."""
    _library()
    from holidays.registry import COUNTRIES

    return {name.replace("_", " "): names[1] for name, names in COUNTRIES.items()}


@lru_cache(maxsize=1)
def library_version() -> str:
    """The installed version, without an import of the library."""
    from importlib.metadata import version

    return version("holidays")
