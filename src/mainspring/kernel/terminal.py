r"""Shows texts of others on a terminal. Control characters become visible, such as \x1b, instead of controlling it.

Otherwise the output of a run could move the cursor over earlier lines, set the title of the window, or type into the
shell of its reader. Characters that change the direction of text would show a command in another order than it runs,
and invisible ones let two names look alike. The dashboard has the same table (`dashboard/src/lib/visible/visible.ts`).
"""

from __future__ import annotations

import json
import re

# Direction of text, separators, and what has no width. Not the joiners and variation selectors, which emoji and some
# scripts need.
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_CONTROL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_UNSEEN}\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` for a terminal, in as many lines as it has. Line feeds and tabs stay, also as the end of a CRLF line."""
    return _CONTROL.sub(_escape, text.replace("\r\n", "\n"))


def visible_line(text: str) -> str:
    r"""`text` in one line: line feeds and tabs become \n and \t too."""
    return _CONTROL.sub(_escape, text).replace("\n", "\\n").replace("\t", "\\t")


def visible_json(text: str) -> str:
    """JSON for a terminal. It is still the same JSON."""
    return _CONTROL.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] == "\r":
        return "\\r"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
