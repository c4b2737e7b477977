"""What an installation of Mainspring contains: its dependencies and theirs, in the versions of requirements.lock."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(.*(?:\n +--hash=.*)*)", re.MULTILINE)

# The environments in which the lock can be installed.
PLATFORMS: tuple[dict[str, str], ...] = tuple(
    {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": machine, **system}
    for python in ("3.11", "3.12", "3.13", "3.14")
    for machine in ("x86_64", "aarch64", "arm64")
    for system in (
        {"sys_platform": "linux", "platform_system": "Linux"},
        {"sys_platform": "darwin", "platform_system": "Darwin"},
    )
)


@dataclass(frozen=True, slots=True)
class Pin:
    """One version of the lock, with the hashes of all its files."""

    version: str
    hashes: tuple[str, ...]


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def requirements(*extras: str) -> list[str]:
    """What an installation with these extras asks for. An extra may name others of ours."""
    ours = project()
    found = [*ours["dependencies"], *(text for extra in extras for text in ours["optional-dependencies"][extra])]
    own = [need for need in map(Requirement, found) if need.name == ours["name"]]
    others = [text for text in found if Requirement(text).name != ours["name"]]
    return [*others, *(text for need in own for extra in sorted(need.extras) for text in requirements(extra))]


def pins(lock: Path = LOCK) -> dict[str, Pin]:
    """The versions of a lock by canonical name."""
    return {
        canonicalize_name(name): Pin(version, tuple(re.findall(r"sha256:([0-9a-f]{64})", hashes)))
        for name, version, hashes in _PIN.findall(lock.read_text())
    }


def applies(requirement: Requirement, extras: set[str]) -> bool:
    """Whether a requirement counts on one of the platforms, with these extras of the package that names it."""
    return requirement.marker is None or any(
        requirement.marker.evaluate({**platform, "extra": extra}) for platform in PLATFORMS for extra in {"", *extras}
    )


def closure(names: list[str]) -> dict[str, metadata.Distribution]:
    """The packages of these requirements and all that they need, as they are installed here, by canonical name.
    Packages that only other platforms need are left out if they are not installed."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        requirement = waiting.pop()
        name, extras = canonicalize_name(requirement.name), set(requirement.extras)
        if (name, frozenset(extras)) in seen:
            continue
        seen.add((name, frozenset(extras)))
        try:
            found[name] = metadata.distribution(requirement.name)
        except metadata.PackageNotFoundError:
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                raise
            continue
        needed = (Requirement(text) for text in found[name].requires or ())
        waiting += [need for need in needed if applies(need, extras)]
    return dict(sorted(found.items()))


def shipped() -> dict[str, metadata.Distribution]:
    """The largest installation without the extras of others: `mainspring[up]`."""
    return closure(requirements("up"))
