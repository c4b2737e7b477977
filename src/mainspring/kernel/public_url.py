"""The address at which people and programs reach the servers, such as that of a load balancer. It is set once, when a
server starts. Without it links are paths."""

from __future__ import annotations

_base = ""


def set_public_url(url: str | None) -> None:
    """Use `url` for all links of this process."""
    global _base
    _base = (url or "").rstrip("/")


def is_known() -> bool:
    """Whether links are absolute."""
    return bool(_base)


def link_to(path: str) -> str:
    """The link to `path`: absolute if the address is known."""
    return f"{_base}{path}"
