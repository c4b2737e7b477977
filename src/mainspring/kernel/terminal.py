r"""Shows texts of others on a terminal. Control characters become visible, such as \x1b, instead of controlling it.

Otherwise the output of a run could move the cursor over earlier lines, set the title of the window, or type into the
shell of its reader. Characters that change the direction of text would show a command in another order than it runs.
"""

from __future__ import annotations

import re

_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_SEPARATORS = "\u2028\u2029"
_CONTROL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTION}{_SEPARATORS}\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` for a terminal, in as many lines as it has. Line feeds and tabs stay, also as the end of a CRLF line."""
    return _CONTROL.sub(_escape, text.replace("\r\n", "\n"))


def visible_line(text: str) -> str:
    r"""`text` in one line: line feeds and tabs become \n and \t too."""
    return _CONTROL.sub(_escape, text).replace("\n", "\\n").replace("\t", "\\t")


def visible_json(text: str) -> str:
    """JSON for a terminal. It is still the same JSON."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] == "\r":
        return "\\r"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
