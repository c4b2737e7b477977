-- stage: pre

-- How a job that can fire again does. state: of domain/health.py. failures: in a row. usual: how many seconds the longest
-- of its last runs took, as of learned_at. A job without a row has never run. before: the state to which a SILENT job
-- goes back; null: it had none.
create table mainspring.job_health (
    tenant_id  int not null,
    job_id     text not null,
    generation int not null,
    state      smallint not null,
    since      timestamptz not null,
    reason     text,
    failures   int not null default 0,
    before     smallint,
    usual      real,
    learned_at timestamptz,
    primary key (tenant_id, job_id)
) with (fillfactor = 70);
create index job_health_unwell on mainspring.job_health (tenant_id, state, job_id) where state <> 1;

-- Live runs with a deadline, a time to start or an expected duration. told: what of it they have exceeded, as bits of
-- domain/health.py. due_at: when to look at it again; null if nothing more can be exceeded. to_cancel: it is to be
-- cancelled.
create table mainspring.watched_runs (
    run_id        uuid primary key,
    tenant_id     int not null,
    job_id        text,
    told          smallint not null default 0,
    due_at        timestamptz,
    to_cancel boolean not null default false
) with (fillfactor = 70);
create index watched_runs_due on mainspring.watched_runs (due_at) where due_at is not null;
create index watched_runs_to_cancel on mainspring.watched_runs (run_id) where to_cancel;
create index watched_runs_late on mainspring.watched_runs (tenant_id, job_id) where told <> 0;

-- Runs that ended before ended_until have been judged, and those that were created before looked_until looked at.
create table mainspring.health_watermark (
    only_row     boolean primary key default true check (only_row),
    ended_until  timestamptz not null,
    looked_until timestamptz not null
);

-- Of events of runs: the rules of their job and its labels.
alter table mainspring.notable_events add column notify json;
alter table mainspring.notable_events add column labels json;
