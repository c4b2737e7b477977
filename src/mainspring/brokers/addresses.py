"""Addresses of brokers: kafka://a:9092,b:9092, nats://host:4222, amqps://host/vhost, rediss://host:6379/0.

An address has no user and no password: these are secrets, and are given apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown

# The scheme of each broker with and without TLS, and its port.
SCHEMES = {
    "kafka": {"kafka": (False, 9092), "kafkas": (True, 9093)},
    "nats": {"nats": (False, 4222), "tls": (True, 4222)},
    "rabbitmq": {"amqp": (False, 5672), "amqps": (True, 5671)},
    "redis": {"redis": (False, 6379), "rediss": (True, 6379)},
}
_EXAMPLES = {
    "kafka": "kafka://a.example.com:9092,b.example.com:9092", "nats": "nats://nats.example.com:4222",
    "rabbitmq": "amqps://rabbit.example.com/vhost", "redis": "rediss://redis.example.com:6379/0",
}  # fmt: skip
_LIBRARIES = {"kafka": "aiokafka", "nats": "nats", "rabbitmq": "aio_pika", "redis": "redis"}
_MOST_HOSTS = 20


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """hosts: names or addresses with their ports. path: the virtual host of RabbitMQ, the database of Redis."""

    kind: str
    scheme: str
    hosts: tuple[tuple[str, int], ...]
    tls: bool
    path: str = ""


def broker_address(kind: str, url: str, field: str = "url") -> BrokerAddress:
    """Parse an address. Raises InvalidInput that names the field. The message does not have a password."""
    schemes, example = SCHEMES[kind], _EXAMPLES[kind]
    try:
        parts = urlsplit(url)
        hosts, path = _hosts(parts.netloc, field), unquote(parts.path.removeprefix("/"))
    except ValueError:
        raise InvalidInput(f"{field} is not an address", field=field, expected=example) from None
    if parts.scheme not in schemes or parts.query or parts.fragment or not url.isascii():
        raise InvalidInput(f"{field} is not an address of {kind}", field=field, expected=example)
    tls, port = schemes[parts.scheme]
    if not hosts or (len(hosts) > 1 and kind != "kafka") or len(hosts) > _MOST_HOSTS:
        raise InvalidInput(f"{field} has {len(hosts)} hosts", field=field, expected=example)
    if kind in ("kafka", "nats") and path:
        raise InvalidInput(f"{field} has a path, {shown(path)}", field=field, expected=example)
    if kind == "redis" and path and not (path.isdecimal() and len(path) < 6):
        raise InvalidInput(f"{shown(path)} is not the number of a database", field=field, expected=example)
    return BrokerAddress(kind, parts.scheme, tuple((host, given or port) for host, given in hosts), tls, path)


def _hosts(netloc: str, field: str) -> list[tuple[str, int | None]]:
    if "@" in netloc:
        raise InvalidInput(
            f"{field} has a user or a password in it", field=field, hint="leave them out; give user and password apart"
        )
    found = []
    for text in netloc.split(","):
        one = urlsplit(f"//{text}")
        if not one.hostname or one.port == 0:
            raise ValueError(text)
        found.append((one.hostname, one.port))
    return found


def require_library(kind: str) -> None:
    """Raises InvalidInput with the extra to install."""
    library = _LIBRARIES.get(kind)
    if library is not None and find_spec(library) is None:
        raise InvalidInput(
            f"{kind} needs an extra: {library} is not installed", code="extra_missing", field="kind",
            hint=f"pip install 'mainspring[{kind}]'",
        )  # fmt: skip
