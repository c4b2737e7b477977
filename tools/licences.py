"""`make audit`, first part: the licence of every package that Mainspring needs is on the list of allowed ones."""

from __future__ import annotations

import re
import sys
from email.message import Message
from typing import cast

from tools.shipped import shipped

# Licences that allow use, change and distribution beside an Apache-2.0 product. MPL-2.0 covers the files of the
# package itself, which we do not change.
ALLOWED = frozenset(
    {
        "0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "CNRI-Python", "ISC", "MIT", "MIT-0", "MPL-2.0",
        "PSF-2.0", "PostgreSQL", "Unlicense", "Zlib",
    }
)  # fmt: skip

# What packages write that do not use SPDX names yet.
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


def licence(package: Message) -> str:
    """The licence of a package as an SPDX expression, or what it says instead. `package` is its metadata."""
    expression = package["License-Expression"]
    if expression:
        return str(expression)
    classifiers = [text.rpartition(" :: ")[2] for text in package.get_all("Classifier", ()) if "License ::" in text]
    if classifiers:
        return " AND ".join(_CLASSIFIERS.get(text, text) for text in sorted(classifiers))
    first_line = str(package["License"] or "").strip().partition("\n")[0]
    return _CLASSIFIERS.get(first_line, first_line) or "unknown"


def allowed(expression: str) -> bool:
    """Whether the expression can be met with allowed licences: all of an AND, one of an OR. No nested groups."""
    if "(" in expression:
        return all(allowed(part) for part in re.split(r" AND |[()]", expression) if part.strip())
    return any(
        all(word.strip() in ALLOWED for word in alternative.split(" AND "))
        for alternative in re.split(r" OR ", expression.strip())
    )


def refused() -> dict[str, str]:
    """The packages whose licence is not on the list, with what they say."""
    found = {name: licence(cast(Message, package.metadata)) for name, package in shipped().items()}
    return {name: text for name, text in found.items() if not allowed(text)}


def main() -> int:
    for name, text in refused().items():
        print(f"{name}: the licence {text!r} is not on the list in tools/licences.py")
    print(f"licences: {len(shipped())} packages, {len(refused())} refused")
    return 1 if refused() else 0


if __name__ == "__main__":
    sys.exit(main())
