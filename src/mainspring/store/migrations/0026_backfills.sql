-- stage: pre
-- Backfills: the fires of a past range of a job, as runs. Runs of a backfill have the trigger `backfill:<id>`.
-- schedule: that of the job when the backfill was created. fire_cursor: fires before it are dealt with; with newest_first
-- those from it on. slice: the next fires in order, of which slice_done are dealt with; slice_exists: whether a run of each
-- existed before. Of all backfills of a job one at most has a slice, so nobody else creates a run for a fire in it.
-- slice_end: the cursor when the slice is done. live: the runs that had not ended when somebody looked last.
create table mainspring.backfills (
    backfill_id  uuid primary key,
    tenant_id    int not null,
    job_id       text not null,
    generation   int not null,
    state        smallint not null,
    from_at      timestamptz not null,
    to_at        timestamptz not null,
    newest_first boolean not null,
    concurrency  int not null,
    total        int not null,
    created      int not null default 0,
    existing     int not null default 0,
    succeeded    int not null default 0,
    failed       int not null default 0,
    cancelled    int not null default 0,
    skipped      int not null default 0,
    fire_cursor  timestamptz not null,
    slice        timestamptz[],
    slice_exists boolean[],
    slice_done   int not null default 0,
    slice_end    timestamptz,
    live         uuid[] not null default '{}',
    reason       text,
    schedule     json not null,
    created_at   timestamptz not null default clock_timestamp(),
    updated_at   timestamptz not null default clock_timestamp(),
    ended_at     timestamptz
) with (fillfactor = 50);
create index backfills_newest on mainspring.backfills (tenant_id, backfill_id);
create index backfills_by_job on mainspring.backfills (tenant_id, job_id, backfill_id);
create index backfills_at_work on mainspring.backfills (backfill_id) where state = 1 or live <> '{}';
