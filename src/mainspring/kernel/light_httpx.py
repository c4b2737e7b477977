"""httpx without its command line. That loads click, rich and pygments: 90 of the 220 ms that `import httpx` takes."""

from __future__ import annotations

import sys
from typing import Any

_modules: dict[str, Any] = sys.modules
_COMMAND_LINE = "httpx._main"
_hidden = _COMMAND_LINE not in _modules
if _hidden:
    _modules[_COMMAND_LINE] = None  # the import raises ImportError, and httpx goes on without it
import httpx as httpx  # noqa: E402

if _hidden:
    del _modules[_COMMAND_LINE]
