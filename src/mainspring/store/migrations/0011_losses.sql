-- stage: pre
-- Losses of runs, and what workers tell about starts.

-- losses: how many attempts were lost with their worker. Each loss also raises max_attempts by one, so it uses up none of
-- the attempts that the job allows. started_at: when the present attempt began, if its worker has told so. A value
-- before claimed_at belongs to an earlier attempt: code that does not know the column does not reset it.
alter table mainspring.runs
    add column losses     smallint not null default 0,
    add column started_at timestamptz;
alter table mainspring.run_history add column losses smallint not null default 0;

-- protocol: of the worker (wire/protocol.py). From 2 on it tells which runs have started.
alter table mainspring.workers add column protocol smallint not null default 1;
