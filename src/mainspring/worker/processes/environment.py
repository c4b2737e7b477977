"""The environment of the processes that runs start."""

from __future__ import annotations

from collections.abc import Mapping

_INHERITED = ("PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the worker's environment that a command gets: enough to find programs and to write text, no
    secrets."""
    kept = {name: environ[name] for name in _INHERITED if name in environ}
    kept |= {name: value for name, value in environ.items() if name.startswith("LC_")}
    kept.setdefault("PATH", _DEFAULT_PATH)
    return kept
