-- stage: pre
-- Runs that asked to come back later (`ctx.snooze`).

-- snoozes: how often. Each snooze also raises max_attempts by one, as a loss does, so it uses up none of the attempts that
-- the job allows. snoozed_until: the end of the last snooze. The run waits for it if it equals ready_at; code that does
-- not know the column sets only ready_at.
alter table mainspring.runs
    add column snoozes       smallint not null default 0,
    add column snoozed_until timestamptz;
alter table mainspring.run_history add column snoozes smallint not null default 0;
