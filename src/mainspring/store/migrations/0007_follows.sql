-- stage: pre
-- What follows the end of a run, as bits (Follows in domain/transitions.py). Null: nothing follows, which is the rule and
-- takes no space. A run keeps its bits in the history, so that what was left undone can be found.
alter table mainspring.runs add column follows smallint;
alter table mainspring.run_history add column follows smallint;
