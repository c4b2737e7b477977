-- stage: post
-- Calendars. An older server would fire a job as if it had no calendar, so the servers take this migration as the sign
-- that none is left (calendars.sql, calendars_known).

-- version: rises with every change. rules_version: the version in which the rules changed last; a job stores the one that
-- decided its next fire, and digest, the hash of the rules. pending: some jobs still have an earlier one. recomputed: how
-- many have been brought to this one.
create table mainspring.calendars (
    tenant_id     int not null,
    name          text not null,
    version       int not null,
    rules_version int not null,
    digest        text not null,
    rules         json not null,
    description   text,
    pending       boolean not null default false,
    recomputed    bigint not null default 0,
    created_at    timestamptz not null default clock_timestamp(),
    updated_at    timestamptz not null default clock_timestamp(),
    updated_by    text not null,
    primary key (tenant_id, name)
);
create index calendars_pending on mainspring.calendars (tenant_id, name) where pending;

-- The rules of every version. They never change, and outlive their calendar: numbers are not used again.
create table mainspring.calendar_versions (
    tenant_id  int not null,
    name       text not null,
    version    int not null,
    digest     text not null,
    rules      json not null,
    created_at timestamptz not null default clock_timestamp(),
    created_by text not null,
    primary key (tenant_id, name, version)
);
create index calendar_versions_by_digest on mainspring.calendar_versions (tenant_id, digest);

-- The versions of the libraries that decided the next fires: time zones and holidays. While walking, jobs after
-- (after_tenant, after_job) are still to be looked at.
create table mainspring.schedule_libraries (
    only_row     boolean primary key default true check (only_row),
    tzdata       text not null,
    holidays     text not null,
    walking      boolean not null default false,
    after_tenant int not null default 0,
    after_job    text not null default '',
    recomputed   bigint not null default 0,
    updated_at   timestamptz not null default clock_timestamp()
);

-- The jobs of a calendar that can fire, those of old versions first.
create index jobs_by_calendar
    on mainspring.jobs (tenant_id, (schedule ->> 'calendar'), ((schedule ->> 'calendar_version')::int), job_id)
    where schedule ->> 'calendar' is not null and status in (1, 2);

-- Those that are COMPLETED and have runs left: another version may allow a fire again.
create index jobs_completed_by_calendar
    on mainspring.jobs (tenant_id, (schedule ->> 'calendar'), ((schedule ->> 'calendar_version')::int), job_id)
    where schedule ->> 'calendar' is not null and status = 4 and runs_left is distinct from 0;
