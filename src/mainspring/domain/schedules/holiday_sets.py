"""Public holidays of countries and their subdivisions, from the `holidays` library.

The library takes 0.2 s to import, so only those import it who evaluate a calendar with holidays.
"""

from __future__ import annotations

import warnings
from functools import lru_cache

_CACHED_YEARS = 4096


@lru_cache(maxsize=_CACHED_YEARS)
def holiday_ordinals(country: str, subdivision: str | None, year: int) -> frozenset[int]:
    """The days of a year that are holidays, as ordinals. Takes 1 to 2 ms."""
    import holidays

    with warnings.catch_warnings():  # it warns of years for which it has no dates of some holidays
        warnings.simplefilter("ignore")
        days = holidays.country_holidays(country, subdiv=subdivision, years=year)
    return frozenset(day.toordinal() for day in days)


@lru_cache(maxsize=1)
def countries() -> dict[str, list[str]]:
    """The subdivisions of each country that the library knows, by ISO 3166 code."""
    import holidays

    return {code: list(parts) for code, parts in holidays.list_supported_countries(include_aliases=False).items()}


@lru_cache(maxsize=1)
def country_names() -> dict[str, str]:
    """The codes of countries by their names in lower case."""
    from holidays.registry import COUNTRIES

    return {name.replace("_", " "): names[1] for name, names in COUNTRIES.items()}


def library_version() -> str:
    """The installed version, without an import of the library."""
    from importlib.metadata import version

    return version("holidays")
