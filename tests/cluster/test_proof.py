"""The kept history is clean, the page has its numbers and all mutants, and a failing history is shrunk."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import msgspec
import pytest

from tests.cluster import kept
from tests.cluster.faults import FAULTS
from tests.cluster.history import COMPLETED_JOB
from tests.cluster.ledger import HISTORY, VERDICT, Verdict, proofs
from tests.cluster.pages import PAGE, with_parts
from tests.cluster.proof import every_fault
from tests.cluster.rules import judge
from tests.cluster.shrink import shrunk
from tests.cluster.story import plain_story
from tests.cluster.wrong_stories import a_second_end


def test_the_page_has_the_numbers_of_the_proofs_and_every_mutant() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_parts(page), "run: python -m tests.cluster.proof pages"


@pytest.mark.skipif(not HISTORY.exists(), reason="no proof was kept yet")
def test_the_history_of_the_newest_proof_is_judged_as_its_verdict_says() -> None:
    assert HISTORY.stat().st_size <= kept.MOST_BYTES
    history = kept.read(HISTORY)
    verdict = msgspec.json.decode(VERDICT.read_bytes(), type=Verdict)
    assert verdict in proofs()
    assert [str(violation) for violation in judge(history)] == verdict.violations == []
    assert (len(history.events), len(history.injections)) == (verdict.events, verdict.faults)


def test_a_kept_history_is_judged_as_the_one_before(tmp_path: Path) -> None:
    story = plain_story()
    a_second_end(story)
    kept.write(story.history, tmp_path / "history.json.xz")
    assert judge(kept.read(tmp_path / "history.json.xz")) == judge(story.history) != []


def test_a_failing_history_is_shrunk_to_what_matters() -> None:
    story = plain_story()
    for number in range(40):
        other = {
            **story.job,
            "job_id": f"other-{number}",
            "status": COMPLETED_JOB,
            "next_fire_at": None,
        }
        story.write(0.1, "server", ("jobs", "I", {}, other))
    a_second_end(story)
    violation = judge(story.history)[0]
    small = shrunk(story.history, violation)
    assert violation in judge(small)
    assert not [job for job in small.jobs if job.startswith("other-")]
    assert len(small.events) <= len(story.history.events) - 40


def test_every_fault_comes_alone_and_then_in_pairs() -> None:
    groups = list(islice(every_fault(7, minutes=60), 2 * len(FAULTS)))
    assert {name for (name,) in (group for group in groups if len(group) == 1)} == FAULTS.keys()
    assert sum(len(group) == 2 for group in groups) > len(FAULTS) // 3
    assert groups[:9] == list(islice(every_fault(7, minutes=60), 9))
