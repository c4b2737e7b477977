-- stage: pre
-- Joins, and what workflow runs keep. A run without dependants has none of this.

-- feeds: the joins that count its end; -n: the join n is wide, and takes marks. waits_for: the join that decides about a
-- WAITING run. rule: how (domain/workflows/rules.py).
alter table mainspring.runs
    add column feeds     bigint[],
    add column waits_for bigint,
    add column rule      smallint;
alter table mainspring.run_history add column feeds bigint[];
create index runs_waiting on mainspring.runs (waits_for, run_id) where waits_for is not null and state = 3;

-- A counter over the ends of a set of parents. blocked: those of `skipped` that were skipped because of a failure. cause:
-- the step whose failure was counted first.
create table mainspring.joins (
    join_id bigint primary key,
    total   int not null,
    ok      int not null default 0,
    failed  int not null default 0,
    skipped int not null default 0,
    blocked int not null default 0,
    cause   text
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000);

-- Ends that a wide join has not counted yet, and ends whose transaction must not lock a join. Zeros: look at its dependants
-- again. Whoever counts them deletes them.
create table mainspring.join_marks (
    join_id bigint not null,
    ok      int not null,
    failed  int not null,
    skipped int not null,
    blocked int not null,
    cause   text
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index join_marks_of_join on mainspring.join_marks (join_id);

-- Each number stands for a block of 4,194,304 ids of joins.
create sequence mainspring.join_blocks as bigint maxvalue 2199023255551;

-- A workflow run that was started. flow_id: its run. prefix: its step runs have this id with other last 32 bits: their
-- number. block: of its joins. version: of the definition. numbers, maps: how many of them are taken. made: how much of the
-- graph is created.
-- reruns: how often parts of it ran again. container: the run that stands for it: its own, or that of its last rerun.
-- lane_id to spec: as its run was fired. stop_reason: why what is left of it is cancelled.
create table mainspring.flows (
    flow_id     uuid primary key,
    container   uuid not null unique,
    tenant_id   int not null,
    job_id      text not null,
    generation  int not null,
    version     int not null,
    block       bigint not null unique,
    prefix      uuid not null unique,
    state       smallint not null,
    steps       int not null,
    numbers     int not null,
    maps        int not null default 0,
    made        int not null default 0,
    reruns      smallint not null default 0,
    lane_id     int not null,
    scheduled_for timestamptz not null,
    name        text,
    parameters  json,
    spec        json,
    stop_reason text,
    started_at  timestamptz not null default clock_timestamp(),
    ended_at    timestamptz
) with (fillfactor = 70);
create index flows_at_work on mainspring.flows (state, flow_id) where state <> 4;
create index flows_ended on mainspring.flows (ended_at) where ended_at is not null;

-- The steps (by their place in the definition) that ran again, with numbers from first_number on, in this order.
create table mainspring.flow_reruns (
    flow_id      uuid not null,
    rerun        smallint not null,
    first_number int not null,
    steps        int[] not null,
    version      int not null,
    container    uuid not null,
    from_step    text,
    created_at   timestamptz not null default clock_timestamp(),
    primary key (flow_id, rerun)
);

-- How step runs have ended, as long as their workflow run is kept. result: if another step may refer to it.
create table mainspring.step_ends (
    run_id   uuid primary key,
    state    smallint not null,
    ended_at timestamptz not null default clock_timestamp(),
    reason   text,
    result   json
);

-- A mapped step that is ready. run_id: its run. join_id: of its members; null before it has begun. The members have the
-- numbers from first_number on. expanded: how many of them were created. failures: with more than this, no more are.
-- targets: the workers of a broadcast.
create table mainspring.fanouts (
    run_id       uuid primary key,
    flow_id      uuid not null,
    step         int not null,
    state        smallint not null,
    join_id      bigint unique,
    total        int,
    expanded     int not null default 0,
    first_number int,
    at_a_time    int,
    failures     int,
    targets      text[],
    created_at   timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
create index fanouts_at_work on mainspring.fanouts (run_id) where state <> 3;
create index fanouts_of_flow on mainspring.fanouts (flow_id);

-- The list of a mapped step, 1,000 items in a chunk.
create table mainspring.fanout_items (
    run_id uuid not null,
    chunk  int not null,
    items  json not null,
    primary key (run_id, chunk)
);
