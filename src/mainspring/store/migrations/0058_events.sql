-- stage: pre

-- What applications have emitted, for as long as it is kept. seq: the order of arrival, and of lists. key: '' if none was
-- given. matched: the runs that it starts are noted in event_starts, and what waited for it has continued.
create table mainspring.events (
    tenant_id  int not null,
    event_id   text not null,
    seq        bigint not null generated always as identity,
    name       text not null,
    key        text not null default '',
    at         timestamptz not null default clock_timestamp(),
    matched    boolean not null default false,
    created_by uuid,
    payload    json,
    primary key (tenant_id, event_id)
);
create index events_newest on mainspring.events (tenant_id, seq);
create index events_by_name on mainspring.events (tenant_id, name, key, seq);
create index events_to_match on mainspring.events (seq) where not matched;

-- Which jobs an event starts: one run for each event and job. due_at: when it starts it at the latest; null: it has
-- started run_id, or never will, for a reason. part: events of the same part share a run, by the schedule of the job.
create table mainspring.event_starts (
    tenant_id  int not null,
    event_id   text not null,
    job_id     text not null,
    generation int not null,
    seq        bigint not null,
    part       text not null default '',
    due_at     timestamptz,
    run_id     uuid,
    reason     text,
    primary key (tenant_id, event_id, job_id)
);
create index event_starts_due on mainspring.event_starts (due_at) where due_at is not null;
create index event_starts_of_job on mainspring.event_starts (tenant_id, job_id, seq) where due_at is not null;

-- The jobs that an event starts.
create index jobs_by_event on mainspring.jobs (tenant_id, (schedule ->> 'event'), job_id)
    where schedule ->> 'event' is not null and status in (1, 2);
