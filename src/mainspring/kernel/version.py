"""The version, read from the installed package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("mainspring")
except PackageNotFoundError:  # run from a source tree that is not installed
    VERSION = "0.0.0"
