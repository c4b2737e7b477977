"""The words of a block of chunks, by their first byte."""

from __future__ import annotations

from mainspring.domain.log_blocks import BlockWords, split
from mainspring.domain.log_words import words_in


def test_the_rows_of_a_block_have_each_word_of_its_chunks() -> None:
    words, block = words_in(b"one two three, four; five\n") or b"", BlockWords()
    block.add(words)
    block.add(words)
    rows = block.rows()
    assert (len(rows), sum(map(len, rows))) == (256, 2 * 5)
    for at in range(0, len(words), 3):
        first, rest = split(words[at : at + 3])
        assert rest in rows[first]
