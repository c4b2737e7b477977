"""A name means one thing, so that who reads it somewhere knows it everywhere."""

from __future__ import annotations

import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "mainspring"
CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)  # public, and not inside of something
MOST = 10
MOST_UNNAMED = 15
UNNAMED = re.compile(r"\b([Ww]hoever|[Ss]omebody|[Nn]obody|[Ee]verybody)\b|^\W*The same\b")

PERHAPS_UNNAMED = re.compile(UNNAMED.pattern.replace("^", ""))  # cheaper than to divide every module into tokens


def test_few_class_names_mean_several_things() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        for name in CLASS.findall(file.read_text()):
            places[name].append(str(file.relative_to(SOURCE)))
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert len(several) <= MOST, several


def test_docstrings_and_comments_name_what_acts() -> None:
    """A sentence names the process, transaction, user or function, instead of whoever, somebody or the same."""
    found = [
        f"{file.relative_to(SOURCE)}:{line}"
        for file in SOURCE.rglob("*.py") if PERHAPS_UNNAMED.search(file.read_text())
        for line, text in texts_in(file) if UNNAMED.search(text)
    ]  # fmt: skip
    assert len(found) <= MOST_UNNAMED, found


def texts_in(file: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a module, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        is_docstring = token.type == tokenize.STRING and token.line.lstrip().startswith('"""')
        if token.type == tokenize.COMMENT or is_docstring:
            yield token.start[0], token.string
