"""What an installation has: the light one has the SDK, the commands of clients and workers; extras have the rest."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.domain.errors import MainspringError

# The extra of each command that needs one: `backup list` is a command of `backup`.
NEEDS = {
    "server": "server",
    "scheduler": "server",
    "migrate": "server",
    "backup": "server",
    "restore": "up",
    "upgrade-database": "up",
    "up": "up",
    "bench": "up",
}
# Modules of the extras that our code imports. `up` is `server` and a PostgreSQL, which --postgres-bin can replace.
_OF_SERVER = ("asyncpg", "cryptography", "holidays", "jwt", "obstore", "prometheus_client", "uvicorn")
_EXTRAS = {**dict.fromkeys(_OF_SERVER, "server"), "opentelemetry": "otel", "psycopg": "sql", "apprise": "apprise"}


def require_extra(command: str) -> None:
    """Raises MainspringError if this command needs an extra that is not installed. command: with its verb, if any."""
    extra = NEEDS.get(command.partition(" ")[0])
    if extra is not None and (missing := missing_modules(_OF_SERVER)):
        raise extra_missing(f"mainspring {command}", missing[0], extra)


def missing_modules(names: Iterable[str] = _OF_SERVER) -> list[str]:
    return [name for name in names if find_spec(name) is None]


def extra_missing(what: str, module: str, extra: str) -> MainspringError:
    from mainspring.domain.errors import MainspringError

    return MainspringError(
        f"{what} needs the extra {extra}: {module} is not installed", code="extra_missing",
        hint=f"pip install 'mainspring[{extra}]'",
    )  # fmt: skip


def in_words(error: Exception) -> Exception:
    """The error, or which extra is missing if it is an import of a module that belongs to one."""
    if not isinstance(error, ModuleNotFoundError):
        return error
    module = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(module)
    return error if extra is None else extra_missing("this", module, extra)
