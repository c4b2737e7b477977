-- stage: pre
-- Rollups: what ended in each minute, hour and day, folded from the history by one server at a time. Reports do not write
-- here.

-- span: 1 minute, 2 hour, 3 day (domain/rollups.py). task and queue: '' means all. ran_us: the sum of durations. lag and
-- ran: histograms of the start lag and the duration, eight buckets for each factor of two; the first element counts the
-- bucket lag_first or ran_first. Hours and days have the minutes that are over.
create table mainspring.rollups (
    span      smallint not null,
    tenant_id int not null,
    task      text not null,
    queue     text not null,
    at        timestamptz not null,
    succeeded bigint not null,
    failed    bigint not null,
    cancelled bigint not null,
    skipped   bigint not null,
    retried   bigint not null,
    lost      bigint not null,
    missed    bigint not null,
    ran_us    bigint not null,
    lag_first smallint,
    lag       bigint[],
    ran_first smallint,
    ran       bigint[],
    primary key (span, tenant_id, task, queue, at)
) with (fillfactor = 60);
create index rollups_by_age on mainspring.rollups (span, at);

-- What ended before folded_until is in the rollups, and nothing else is.
create table mainspring.rollup_watermark (
    only_row     boolean primary key default true check (only_row),
    folded_until timestamptz not null
);

-- Failed attempts of an hour with the same fingerprint: task, class and masked message. minutes: how many in each minute.
-- failed: those that ended their run. job_ids: some of the jobs.
create table mainspring.failure_groups (
    tenant_id   int not null,
    at          timestamptz not null,
    fingerprint text not null,
    queue       text not null,
    task        text not null,
    title       text not null,
    count       bigint not null,
    failed      bigint not null,
    minutes     int[] not null,
    first_at    timestamptz not null,
    last_at     timestamptz not null,
    sample_run  uuid not null,
    job_ids     text[] not null,
    primary key (tenant_id, at, fingerprint, queue)
) with (fillfactor = 60);
create index failure_groups_by_age on mainspring.failure_groups (at);

-- What waits and runs, by lane, as counted at taken_at. Unlogged: it is counted anew every few seconds.
create unlogged table mainspring.lane_gauges (
    lane_id   int primary key,
    tenant_id int not null,
    depth     bigint not null,
    scheduled bigint not null,
    held      bigint not null,
    running   bigint not null,
    oldest_at timestamptz,
    taken_at  timestamptz not null
) with (fillfactor = 50);
create index lane_gauges_of_tenant on mainspring.lane_gauges (tenant_id);

-- One server at a time takes the samples. due_at: when the next one is due, also if the server has died.
create unlogged table mainspring.gauge_pass (
    only_row boolean primary key default true check (only_row),
    taken_at timestamptz not null,
    due_at   timestamptz not null
);

-- The same over time: the largest value within each minute and hour. queue '': all, and the slots of the workers.
create table mainspring.gauge_rollups (
    span      smallint not null,
    tenant_id int not null,
    queue     text not null,
    at        timestamptz not null,
    waiting   bigint not null,
    held      bigint not null,
    running   bigint not null,
    slots     bigint not null,
    backlog   bigint not null,
    primary key (span, tenant_id, queue, at)
) with (fillfactor = 60);
create index gauge_rollups_by_age on mainspring.gauge_rollups (span, at);

-- To find the newest rows. A BRIN index costs next to nothing when a row is added.
create index attempts_by_end on mainspring.attempts using brin (ended_at) with (pages_per_range = 32, autosummarize = on);
create index missed_fires_by_age on mainspring.missed_fires using brin (recorded_at)
    with (pages_per_range = 32, autosummarize = on);
