"""The layout of tables: whatever the texts are, a table fits the terminal, and every row is one line."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from mainspring.cli.screen import table_texts
from mainspring.cli.short_ids import ShortIds
from mainspring.cli.table import Column, cut, lay_out, wrapped
from mainspring.kernel.ids import uuid7_texts

WIDE = "\u65e5\u672c\u8a9e \U0001f680 e\u0301 \u200d \x1b[31m\x07\n\t\u202e"
texts = st.one_of(
    st.text(max_size=80), st.text(WIDE + "ab ", max_size=80), st.sampled_from(["", "RUNNING", *uuid7_texts(3)])
)


@st.composite
def columns(draw: st.DrawFn) -> list[Column]:
    column = st.builds(
        Column, st.text("ABC ", max_size=12), rank=st.integers(0, 3), least=st.none() | st.integers(1, 30),
        right=st.booleans(), ids=st.booleans(),
    )  # fmt: skip
    return draw(st.lists(column, min_size=1, max_size=9))


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], list[list[str]]]:
    made = draw(columns())
    row = st.lists(texts, min_size=len(made), max_size=len(made))
    return made, draw(st.lists(row, max_size=5))


@settings(max_examples=60, deadline=None)
@given(tables(), st.integers(40, 200), st.booleans())
def test_any_table_fits_any_width(table: tuple[list[Column], list[list[str]]], width: int, full_ids: bool) -> None:
    made, rows = table
    lines = table_texts(made, rows, width, full_ids=full_ids)
    assert len(lines) == len(rows) + 1
    for line in lines:
        assert cell_len(line.plain) <= width
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e]", line.plain)


@settings(max_examples=50, deadline=None)
@given(tables())
def test_a_pipe_gets_every_column_and_whole_texts(table: tuple[list[Column], list[list[str]]]) -> None:
    made, rows = table
    lines = table_texts(made, rows, None)
    for row, line in zip(rows, lines[1:], strict=True):
        for text in row:
            if text.isascii() and text.isprintable():
                assert text.rstrip() in line.plain


@settings(max_examples=100, deadline=None)
@given(texts, st.integers(1, 40))
def test_a_cut_text_fits_and_says_that_it_is_cut(text: str, width: int) -> None:
    shown = cut(text, width)
    assert cell_len(shown) <= width
    assert shown == text or shown.endswith("…")


@settings(max_examples=100, deadline=None)
@given(st.text("ab \u65e5", max_size=200), st.integers(4, 60))
def test_wrapped_lines_keep_every_word_and_fit(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    short = [word for word in text.split() if cell_len(word) <= width]
    assert all(any(word in line for line in lines) for word in short)


def test_columns_are_left_out_by_rank_before_a_text_gets_too_short() -> None:
    made = [Column("A"), Column("B", rank=1, least=10), Column("C", rank=3, least=10), Column("D", rank=2)]
    rows = [["aaaa", "b" * 30, "c" * 30, "dddddd"]]
    assert lay_out(made, rows, 80).shown == [0, 1, 2, 3]
    assert lay_out(made, rows, 40).widths == [4, 12, 12, 6]
    assert lay_out(made, rows, 30).shown == [0, 1, 3]
    assert lay_out(made, rows, 20).shown == [0, 1]
    assert lay_out(made, rows, 12).shown == [0]


def test_a_column_without_any_text_is_left_out_on_a_terminal() -> None:
    made = [Column("A"), Column("B", rank=1), Column("C", rank=1)]
    assert lay_out(made, [["a", "", "c"]], 80).shown == [0, 2]
    assert lay_out(made, [["a", "", "c"]], None).shown == [0, 1, 2]


def test_short_ids_are_the_last_characters_and_tell_ids_apart() -> None:
    one, two, three = (f"0197a6c0-5d1e-7c3a-9d50-{tail}" for tail in ("2f1f6f0a8b11", "2f1e6f0a8b11", "2f1f6f0a8b12"))
    ids = ShortIds([one, three, "daily_report"])
    assert [ids.shorten(text) for text in (one, three, "daily_report")] == ["6f0a8b11", "6f0a8b12", "daily_report"]
    assert ids.shorten(f"node {one}") == "node 6f0a8b11"
    assert [ShortIds([one, two]).shorten(text) for text in (one, two)] == ["f6f0a8b11", "e6f0a8b11"]
