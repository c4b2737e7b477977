-- stage: pre
-- breaking
-- The schema of the first release. Migrations of before were never released: a database that has them is refused.
create schema if not exists mainspring;

-- stage: `pre` or `post`, see docs/upgrading.md. breaking: code that does not know this migration must not start.
create table mainspring.schema_migrations (
    version    int primary key,
    name       text not null,
    applied_at timestamptz not null default clock_timestamp(),
    stage      text not null default 'pre' check (stage in ('pre', 'post')),
    breaking   boolean not null default true
);

-- Tenant 0 is none: it stands for every tenant, on the tokens of shared workers, on these workers and on what they declare
-- about tasks.
create table mainspring.tenants (
    tenant_id  int primary key check (tenant_id > 0),
    name       text not null unique,
    created_at timestamptz not null default clock_timestamp()
);
insert into mainspring.tenants (tenant_id, name) values (1, 'default');

create table mainspring.tokens (
    token_id   uuid primary key,
    tenant_id  int not null,
    token_hash bytea not null unique,
    role       text not null,
    name       text not null,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz,
    revoked_at timestamptz
);

-- A lane is interned (tenant, queue, priority, task, required labels): what a worker may take is a set of lanes.
create table mainspring.lanes (
    lane_id   int generated always as identity primary key,
    tenant_id int not null,
    queue     text not null,
    priority  smallint not null,
    task      text not null,
    labels    text not null default '',
    unique (tenant_id, queue, priority, task, labels)
);

-- generation: counts the jobs that had the same chosen id. declared_by: the application whose code declares the job.
-- pruned_version: the version that its pause for lack of a declaration wrote. Both are null for jobs that people create.
-- runs_left: how many runs the schedule will still make, if it has max_runs; a fire takes from it in the statement that
-- advances the job. edges: bits (domain/dependencies.py): other jobs depend on it, its runs WAIT, it fires after others;
-- null: none of them. last_nominal_for: all nominal times up to it are dealt with: they have run, are recorded as skipped
-- or missed, or do not count. It only rises. Null: as last_fired_for.
create table mainspring.jobs (
    tenant_id        int not null,
    job_id           text not null,
    lane_id          int not null,
    shard            smallint not null,
    status           smallint not null,
    version          int not null default 1,
    overlap          smallint not null default 0,
    max_attempts     smallint not null,
    one_time         boolean not null,
    id_generated     boolean not null,
    next_fire_at     timestamptz,
    last_fired_for   timestamptz,
    paused_from      timestamptz,
    created_at       timestamptz not null,
    updated_at       timestamptz not null,
    name             text,
    schedule         json not null,
    payload          json,
    spec             json,
    generation       int not null default 1,
    declared_by      text,
    pruned_version   int,
    runs_left        int,
    edges            smallint,
    last_nominal_for timestamptz,
    primary key (tenant_id, job_id)
);
create index jobs_due on mainspring.jobs (shard, next_fire_at) where next_fire_at is not null;
create index jobs_newest on mainspring.jobs (tenant_id, created_at, job_id);
-- Lists of jobs by status: paused, cancelled and completed ones are few among those that will fire.
create index jobs_at_rest on mainspring.jobs (tenant_id, created_at, job_id) where status <> 1;
-- The jobs of a calendar that can fire, those of old versions first.
create index jobs_by_calendar
    on mainspring.jobs (tenant_id, (schedule ->> 'calendar'), ((schedule ->> 'calendar_version')::int), job_id)
    where schedule ->> 'calendar' is not null and status in (1, 2);
-- Those that are COMPLETED and have runs left: another version may allow a fire again.
create index jobs_completed_by_calendar
    on mainspring.jobs (tenant_id, (schedule ->> 'calendar'), ((schedule ->> 'calendar_version')::int), job_id)
    where schedule ->> 'calendar' is not null and status = 4 and runs_left is distinct from 0;
-- Lists of the jobs of an owner, in the order of the list. Jobs without an owner have no entry.
create index jobs_by_owner on mainspring.jobs (tenant_id, (spec ->> 'owner'), created_at, job_id)
    where spec ->> 'owner' is not null;

-- Live runs only: small and hot. job_id is null when it equals run_id (a one-time job with an id of ours), so that
-- such a run has no entry in the identity index at all. trigger is null for 'schedule', 'at' for one-time jobs that
-- waited in jobs. exclusive: two attempts must never overlap (at most once, or an overlap rule), so a worker that is
-- cut off stops it at once.
-- deadline: when the whole run, retries and waits included, must be over; set by its first claim when the job has a
-- run_timeout. node_id: the scheduler that fired it; null for what was submitted to run at once.
-- fired_at: when the scheduler fired it; null for what was submitted to run at once (then it was queued at
-- scheduled_for), there without a node_id for runs by hand and replays. progress_number: of the last word of progress,
-- so that a late copy of an earlier one changes nothing.
-- follows: what follows its end, as bits (Follows in domain/transitions.py); null: nothing. A run keeps its bits in the
-- history, so that what was left undone can be found. expires_at: when it expires if it has not started.
-- losses: how many attempts were lost with their worker. Each loss also raises max_attempts by one, so it uses up none of
-- the attempts that the job allows. started_at: when the present attempt began, if its worker has told so. A value
-- before claimed_at belongs to an earlier attempt.
-- snoozes: how often it asked to come back later. Each snooze also raises max_attempts by one, as a loss does.
-- snoozed_until: the end of the last snooze. The run waits for it if it equals ready_at.
-- limit_keys: the slots that the run needs, sorted. It owns them while it is QUEUED or RUNNING. gates: the gates of its
-- queue and tenant through which it was claimed; it owns them while it is RUNNING. held_key: the line in which a HELD run
-- stands. held_rank: its place there. wake_at: until then it backs off without a slot.
-- adopted: it was claimed before its gate was set: its worker does not know that it is exclusive.
-- rate_keys: the lines of rates (at most two) in which an admitted run has a token. breaker_key: the line of its breaker.
-- Both are null while the run is HELD.
-- cancel_reason: why it was told to stop; null: on request.
-- feeds: the joins that count its end; -n: the join n is wide, and takes marks. waits_for: the join that decides about a
-- WAITING run. rule: how (domain/workflows/rules.py).
-- usage: what its processes have used: {"cpu_s", "rss_peak", "rss", "samples"}. nominal_for: the nominal time of a run of
-- a schedule; null: it is scheduled_for, because the schedule has no jitter. alone: it was lost because the process of its
-- worker ended by itself; its next attempt begins without neighbours.
create table mainspring.runs (
    run_id              uuid primary key,
    tenant_id           int not null,
    lane_id             int not null,
    state               smallint not null,
    attempt             smallint not null default 0,
    max_attempts        smallint not null,
    fence               int not null default 0,
    exclusive           boolean not null default false,
    scheduled_for       timestamptz not null,
    ready_at            timestamptz not null,
    claimed_at          timestamptz,
    cancel_requested_at timestamptz,
    claim_seq           bigint,
    worker_id           uuid,
    job_id              text,
    trigger             text,
    name                text,
    last_error          text,
    payload             json,
    spec                json,
    deadline            timestamptz,
    progress            real,
    progress_text       text,
    node_id             uuid,
    fired_at            timestamptz,
    progress_number     int,
    follows             smallint,
    expires_at          timestamptz,
    losses              smallint not null default 0,
    started_at          timestamptz,
    generation          int not null default 1,
    snoozes             smallint not null default 0,
    snoozed_until       timestamptz,
    limit_keys          bigint[],
    gates               bigint[],
    held_key            bigint,
    held_rank           timestamptz,
    wake_at             timestamptz,
    adopted             boolean,
    rate_keys           bigint[],
    breaker_key         bigint,
    cancel_reason       text,
    feeds               bigint[],
    waits_for           bigint,
    rule                smallint,
    usage               json,
    nominal_for         timestamptz,
    alone               boolean
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0);
create index runs_ready on mainspring.runs (lane_id, ready_at) where state = 1;
create index runs_held_by on mainspring.runs (worker_id) where state = 2;
create index runs_to_stop on mainspring.runs (worker_id) where state = 2 and cancel_requested_at is not null;
create index runs_overdue on mainspring.runs (deadline) where deadline is not null;
create index runs_expiry on mainspring.runs (expires_at) where expires_at is not null;
create unique index runs_identity
    on mainspring.runs (tenant_id, job_id, generation, trigger, scheduled_for)
    nulls not distinct where job_id is not null;
create index runs_line on mainspring.runs (held_key, held_rank, run_id) where held_key is not null and state = 4;
create index runs_asleep on mainspring.runs (wake_at) where wake_at is not null;
-- For the count of what waits in a queue.
create index runs_held_in_lane on mainspring.runs (lane_id) where state = 4;
-- The runs that have a token and have not started as far as known, and those that a breaker that opens takes back.
create index runs_paced_1 on mainspring.runs ((rate_keys[1]))
    where rate_keys is not null and started_at is null;
create index runs_paced_2 on mainspring.runs ((rate_keys[2]))
    where rate_keys[2] is not null and started_at is null;
create index runs_behind_breaker on mainspring.runs (breaker_key) where breaker_key is not null;
create index runs_waiting on mainspring.runs (waits_for, run_id) where waits_for is not null and state = 3;
create unique index runs_nominal on mainspring.runs (tenant_id, job_id, generation, trigger, nominal_for)
    nulls not distinct where nominal_for is not null;
-- By the time at which a run was submitted, or its job fired.
create index runs_in_order on mainspring.runs (held_key, (coalesce(fired_at, scheduled_for)), run_id)
    where held_key is not null and state = 4;
-- A run with several limits stands in one line and needs a slot of others as well.
create index runs_in_several_lines on mainspring.runs using gin (limit_keys) with (fastupdate = off)
    where held_key is not null and limit_keys[2] is not null;

-- The first run that needs a slot of this line, stands in another one, and was submitted before that time. Null if there is
-- none. Sessions of servers do not use bitmap scans, which this index needs.
create function mainspring.first_elsewhere(line bigint, before timestamptz) returns uuid
language plpgsql stable strict set enable_bitmapscan = on set enable_seqscan = off as $$
begin
    return (select r.run_id
            from mainspring.runs r
            where r.limit_keys @> array[line] and r.held_key is not null and r.limit_keys[2] is not null
              and r.held_key <> line and coalesce(r.fired_at, r.scheduled_for) < before
            order by coalesce(r.fired_at, r.scheduled_for), r.run_id
            limit 1);
end $$;

-- Ended runs: append-only, a partition for each day of the end. No default partition. payload_dropped: the payload was not
-- kept when the run succeeded, see `keep_payload`. held: the slots and gates that it gave back.
create table mainspring.run_history (
    run_id              uuid not null,
    tenant_id           int not null,
    lane_id             int not null,
    state               smallint not null,
    attempt             smallint not null,
    max_attempts        smallint not null,
    fence               int not null,
    scheduled_for       timestamptz not null,
    started_at          timestamptz,
    ended_at            timestamptz not null,
    ran_ms              real,
    worker_id           uuid,
    job_id              text,
    trigger             text,
    name                text,
    reason              text,
    error               text,
    result              json,
    payload             json,
    spec                json,
    node_id             uuid,
    fired_at            timestamptz,
    cancel_requested_at timestamptz,
    follows             smallint,
    losses              smallint not null default 0,
    payload_dropped     boolean default true,
    generation          int not null default 1,
    snoozes             smallint not null default 0,
    held                bigint[],
    feeds               bigint[],
    usage               json,
    nominal_for         timestamptz
) partition by range (ended_at);
create index run_history_by_run on mainspring.run_history (run_id);
create index run_history_by_job on mainspring.run_history (job_id, run_id) where job_id is not null;
create index run_history_by_end on mainspring.run_history using brin (ended_at) with (pages_per_range = 32, autosummarize = on);
create index run_history_unsuccessful on mainspring.run_history (run_id) where state <> 10;

-- Attempts that were followed by another one. ready_at: when the run was to be tried again.
create table mainspring.attempts (
    run_id     uuid not null,
    attempt    smallint not null,
    fence      int not null,
    worker_id  uuid,
    started_at timestamptz,
    ended_at   timestamptz not null,
    outcome    text not null,
    error      text,
    ready_at   timestamptz,
    usage      json
) partition by range (ended_at);
create index attempts_by_run on mainspring.attempts (run_id, attempt);
-- To find the newest rows. A BRIN index costs next to nothing when a row is added.
create index attempts_by_end on mainspring.attempts using brin (ended_at) with (pages_per_range = 32, autosummarize = on);

create table mainspring.missed_fires (
    missed_id   bigint generated always as identity primary key,
    tenant_id   int not null,
    job_id      text not null,
    first_at    timestamptz not null,
    last_at     timestamptz not null,
    count       int not null,
    reason      text not null,
    recorded_at timestamptz not null default clock_timestamp(),
    generation  int not null default 1
);
create index missed_fires_by_job on mainspring.missed_fires (tenant_id, job_id, missed_id);
create index missed_fires_by_age on mainspring.missed_fires using brin (recorded_at)
    with (pages_per_range = 32, autosummarize = on);
-- The missed fires of all jobs of a tenant, newest first.
create index missed_fires_newest on mainspring.missed_fires (tenant_id, missed_id);

-- Runs that failed for good, with what a replay needs.
create table mainspring.dead_letters (
    run_id        uuid primary key,
    tenant_id     int not null,
    lane_id       int not null,
    job_id        text,
    name          text,
    attempts      smallint not null,
    error         text,
    scheduled_for timestamptz not null,
    died_at       timestamptz not null,
    payload       json,
    spec          json,
    trigger       text,
    max_attempts  smallint not null,
    reason        text,
    generation    int not null default 1
);
create index dead_letters_newest on mainspring.dead_letters (tenant_id, run_id);

-- merged: what became of the submission with the key; null if it created its job, else kept, replaced or later.
create table mainspring.idempotency_keys (
    tenant_id  int not null,
    key        text not null,
    body_hash  bytea not null,
    job_id     text not null,
    created_at timestamptz not null default clock_timestamp(),
    generation int not null default 1,
    merged     text,
    primary key (tenant_id, key)
);
create index idempotency_keys_by_age on mainspring.idempotency_keys using brin (created_at);

-- Ids that clients chose. A one-time job leaves jobs when it fires, so its uniqueness needs a place of its own.
-- generation: the newest one of the id.
create table mainspring.taken_ids (
    tenant_id  int not null,
    job_id     text not null,
    taken_at   timestamptz not null default clock_timestamp(),
    generation int not null default 1,
    primary key (tenant_id, job_id)
);
create index taken_ids_by_age on mainspring.taken_ids using brin (taken_at);

-- Incarnations of workers. secret_hash: the SHA-256 of the secret with which the watchdog of an incarnation proves its
-- notice. notice_at: when a server took the notice; the incarnation is over since then, and nothing of it runs any more.
-- rescue_after, exclusive_rescue_after: for how many seconds of silence others leave its ordinary and its exclusive runs
-- alone. A worker that asks for nothing has 7.
-- heard_at, heard_by: the last heartbeat, once its table has been truncated, and the server that took it.
-- lost_because: why the worker is LOST.
-- protocol: of the worker (wire/protocol.py). From 2 on it tells which runs have started.
-- token_id: the token that registered it. A worker without a secret is bound to it.
create table mainspring.workers (
    worker_id              uuid primary key,
    tenant_id              int not null,
    name                   text not null,
    queues                 text[] not null,
    tasks                  text[] not null,
    labels                 jsonb not null default '{}',
    version                text not null default '',
    slots                  int not null,
    state                  smallint not null default 1,
    last_seq               bigint not null default 0,
    registered_at          timestamptz not null default clock_timestamp(),
    ended_at               timestamptz,
    secret_hash            bytea,
    notice_at              timestamptz,
    rescue_after           real not null default 7,
    exclusive_rescue_after real not null default 7,
    heard_at               timestamptz,
    heard_by               uuid,
    lost_because           text,
    protocol               smallint not null default 1,
    token_id               uuid
) with (fillfactor = 50);
create index workers_alive on mainspring.workers (worker_id) where state in (1, 2);

-- Heartbeats are appended, one row for all workers heard by a server since its last row; the two tables are
-- truncated in turn. Unlogged: a crash forgets them, and the rescuer then waits a full lease before it judges.
create unlogged table mainspring.worker_beats_0 (
    server_id  uuid not null,
    at         timestamptz not null default clock_timestamp(),
    worker_ids uuid[] not null
);

create unlogged table mainspring.worker_beats_1 (
    server_id  uuid not null,
    at         timestamptz not null default clock_timestamp(),
    worker_ids uuid[] not null
);

-- Leases are longer than the turn of a beat table. Before one is truncated, the last heartbeat of
-- each worker that the other table does not contain is copied to its row. A row that is locked by somebody else is not
-- waited for: the truncation fails, and the next sweep tries again.
create function mainspring.keep_heard() returns trigger
language plpgsql as $$
declare
    other text := case tg_table_name when 'worker_beats_0' then 'worker_beats_1' else 'worker_beats_0' end;
    left_out bigint;
begin
    execute format($query$
        with later as materialized (
            select distinct unnest(worker_ids) as worker_id from mainspring.%1$I
        ), forgotten as materialized (
            select w.worker_id, w.heard_at
            from mainspring.workers w
            where w.state in (1, 2) and not exists (select from later l where l.worker_id = w.worker_id)
        ), heard as materialized (
            select distinct on (b.worker_id) b.worker_id, b.at, b.server_id
            from (select at, server_id, unnest(worker_ids) as worker_id from mainspring.%2$I) as b
            join forgotten f on f.worker_id = b.worker_id and (f.heard_at is null or f.heard_at < b.at)
            order by b.worker_id, b.at desc
        ), free as materialized (
            select w.worker_id
            from mainspring.workers w
            join heard h on h.worker_id = w.worker_id
            order by w.worker_id
            for no key update of w skip locked
        ), kept as (
            update mainspring.workers w
            set heard_at = h.at, heard_by = h.server_id
            from heard h
            join free f on f.worker_id = h.worker_id
            where w.worker_id = h.worker_id
            returning w.worker_id
        )
        select (select count(*) from heard) - (select count(*) from kept)
    $query$, other, tg_table_name) into left_out;
    if left_out > 0 then
        raise lock_not_available using message = format('%s workers are locked: their last heartbeats cannot be kept', left_out);
    end if;
    return null;
end
$$;
create trigger keep_heard before truncate on mainspring.worker_beats_0
    for each statement execute function mainspring.keep_heard();
create trigger keep_heard before truncate on mainspring.worker_beats_1
    for each statement execute function mainspring.keep_heard();

-- Unlogged like the beats, so that a crash empties it too: a rescuer that does not find its own row knows that the
-- beats were forgotten.
create unlogged table mainspring.beat_witnesses (
    witness_id uuid primary key,
    at         timestamptz not null default clock_timestamp()
);

create table mainspring.nodes (
    node_id    uuid primary key,
    host       text not null,
    started_at timestamptz not null default clock_timestamp(),
    seen_at    timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

create table mainspring.shard_leases (
    shard      smallint primary key,
    owner      uuid,
    epoch      bigint not null default 0,
    expires_at timestamptz not null default '-infinity',
    unique (shard, epoch)
) with (fillfactor = 50);
insert into mainspring.shard_leases (shard) select generate_series(0, 127);

-- An edge: child depends on parent, or fires after it. fired_for: the last fire of the child. satisfied_at, satisfied_run,
-- satisfied_end: of an `after` edge, the end of the parent that counts since then.
create table mainspring.job_edges (
    tenant_id     int not null,
    parent        text not null,
    child         text not null,
    satisfied_at  timestamptz,
    after         boolean not null default false,
    fired_for     timestamptz,
    satisfied_run uuid,
    satisfied_end smallint,
    primary key (tenant_id, parent, child)
);
create index job_edges_of_child on mainspring.job_edges (tenant_id, child);

-- One row per attempt that printed something. The bytes lie in the log store; `bytes` says up to where they count.
-- worker_id and fence say who may append.
create table mainspring.run_logs (
    run_id     uuid not null,
    attempt    smallint not null,
    fence      int not null,
    tenant_id  int not null,
    worker_id  uuid not null,
    bytes      bigint not null default 0,
    truncated  boolean not null default false,
    ended      boolean not null default false,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    primary key (run_id, fence)
) with (fillfactor = 80);
create index run_logs_by_age on mainspring.run_logs using brin (created_at);

-- What the newest registered worker says a task's payload must look like (JSON Schema).
create table mainspring.task_signatures (
    tenant_id     int not null,
    task          text not null,
    schema        json not null,
    registered_at timestamptz not null default clock_timestamp(),
    primary key (tenant_id, task)
);
comment on column mainspring.task_signatures.schema is
    'JSON Schema of the payload; under x-mainspring-options the options that the task declares for its jobs';

-- Which run repeats which: a run is repeated once at most, and what repeats it may be repeated in its turn.
create table mainspring.replays (
    run_id      uuid primary key,
    tenant_id   int not null,
    replay_id   uuid not null,
    replayed_at timestamptz not null default clock_timestamp()
);
create index replays_by_age on mainspring.replays using brin (replayed_at);

-- What a transaction has submitted and not yet stored. Rows come and go within one transaction, so nothing of it needs
-- to survive a crash. A trigger moves them to runs and jobs when the transaction commits.
create unlogged table mainspring.submissions (
    xact         xid8 not null default pg_current_xact_id(),
    turn         bigint generated always as identity,
    tenant_id    int not null,
    run_id       uuid not null,
    job_id       text,
    queue        text not null,
    priority     smallint not null,
    task         text not null,
    labels       text not null,
    kind         text not null,
    fire_at      timestamptz,
    every        numeric,
    overlap      smallint not null,
    max_attempts smallint not null,
    name         text,
    payload      json,
    spec         json,
    primary key (xact, turn)
);

-- The routines of store/routines as they were applied last: by which version of Mainspring, and which functions those
-- are. One row.
-- lock_number: the keys of our advisory locks are made of it, so that only the owner and the servers can know them
-- (lock_key in fragments.sql).
create table mainspring.routines (
    only_row    boolean primary key default true check (only_row),
    version     text not null,
    hash        text not null,
    functions   text[] not null,
    applied_at  timestamptz not null default clock_timestamp(),
    lock_number uuid not null default gen_random_uuid()
);

-- The tenant for which a role that logs in to PostgreSQL submits jobs with mainspring.submit. Written by the operator.
create table mainspring.tenant_roles (
    role      name primary key,
    tenant_id int not null references mainspring.tenants
);

-- A key of run-now, and the run that it created. Its scope is the generation of a job. created_at: when it was used first,
-- or a later end of a run of the job whose history was dropped.
create table mainspring.run_now_keys (
    tenant_id  int not null,
    job_id     text not null,
    generation int not null default 1,
    key        text not null,
    body_hash  bytea not null,
    run_id     uuid not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant_id, job_id, generation, key)
);
create index run_now_keys_by_age on mainspring.run_now_keys using brin (created_at);

-- The jobs row of an earlier generation, as JSON of mainspring.jobs. A one-time job that has fired has none: its run has
-- its definition.
create table mainspring.past_jobs (
    tenant_id   int not null,
    job_id      text not null,
    generation  int not null,
    job         json not null,
    replaced_at timestamptz not null default clock_timestamp(),
    primary key (tenant_id, job_id, generation)
);
create index past_jobs_by_age on mainspring.past_jobs using brin (replaced_at);

-- What each version of an application declares. A later number is a newer version. last_at: when a worker last said so,
-- to the minute. applied_at: when its workers last began to change jobs to what it declares, after another version had.
create table mainspring.declarations (
    tenant_id   int not null,
    application text not null,
    number      int not null,
    fingerprint text not null,
    named       boolean not null,
    source      text not null,
    job_ids     text[] not null,
    last_at     timestamptz not null,
    applied_at  timestamptz,
    primary key (tenant_id, application, number)
);
create unique index declarations_fingerprint on mainspring.declarations (tenant_id, application, fingerprint);

-- Which worker incarnations run which version.
create table mainspring.declaring_workers (
    tenant_id   int not null,
    application text not null,
    worker_id   uuid not null,
    number      int not null,
    since       timestamptz not null,
    primary key (tenant_id, application, worker_id)
);

-- What was declared by jobs and tasks, or set by a person (pinned). slots: what counts; null for a limit of rate only.
-- declared: what jobs and tasks have declared last. strict: one after another in the order of submission. every and burst:
-- the seconds per token of its rate, and the size of its bucket.
-- failures: how many in a row open the breaker, for open_for seconds.
create table mainspring.limits (
    limit_id   int generated always as identity primary key,
    tenant_id  int not null,
    name       text not null,
    slots      int,
    declared   int,
    strict     boolean not null default false,
    every      float8,
    burst      int,
    pinned     boolean not null default false,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    failures   int,
    open_for   float8,
    unique (tenant_id, name)
);

-- One line of a limit: what a run counts under. in_use: the runs that own a slot. tat: when the bucket of the rate is full
-- again. next_at: when a run of the line may start at the earliest.
-- failed: the failures in a row. opened_at: null while the breaker is closed. next_at: until then it admits nobody. probe:
-- the run that was admitted to find out.
create table mainspring.limit_keys (
    key_id    bigint primary key,
    limit_id  int not null references mainspring.limits,
    key       text not null,
    in_use    int not null default 0,
    tat       timestamptz,
    next_at   timestamptz,
    used_at   timestamptz not null default clock_timestamp(),
    failed    int not null default 0,
    opened_at timestamptz,
    probe     uuid
) with (fillfactor = 50);
create index limit_keys_of_limit on mainspring.limit_keys (limit_id);
create index limit_keys_unused on mainspring.limit_keys (used_at) where in_use = 0;
create index limit_keys_due on mainspring.limit_keys (next_at) where next_at is not null;
create index limit_keys_open on mainspring.limit_keys (key_id) where opened_at is not null;

-- Unique jobs: who has a key. digest: a hash of the fields of the key and their values. The job has the key until `until`,
-- while it is in one of these states: scheduled, held, queued, running. Whoever submits a job with the key locks the row.
create table mainspring.unique_keys (
    tenant_id  int not null,
    digest     bytea not null,
    job_id     text not null,
    generation int not null,
    states     text[] not null,
    taken_at   timestamptz not null default clock_timestamp(),
    until      timestamptz not null,
    primary key (tenant_id, digest)
) with (fillfactor = 70);
create index unique_keys_by_end on mainspring.unique_keys (until);

-- queue: null for the gate of the whole tenant. tenant_id 0: the gate of all tenants, which can only be paused. rate, burst:
-- how often runs start. max_depth: how many runs may wait. in_use: the claimed runs that own this gate (runs.gates),
-- including those that gate_marks has given back. counted: false until the runs are counted that were claimed before it had
-- a limit of concurrency; nothing is claimed through it meanwhile. tat: when the bucket of its rate is full again.
create table mainspring.gates (
    gate_id     int generated always as identity primary key,
    tenant_id   int not null,
    queue       text,
    paused_at   timestamptz,
    paused_by   text,
    concurrency int,
    rate        text,
    burst       int,
    max_depth   int,
    in_use      int not null default 0,
    counted     boolean not null default true,
    tat         timestamptz,
    version     int not null default 1,
    updated_at  timestamptz not null default clock_timestamp(),
    unique nulls not distinct (tenant_id, queue)
) with (fillfactor = 50);

-- Gates that runs have given back, and how many of each. The next claim through a gate takes its marks off in_use.
create table mainspring.gate_marks (
    gate_id int not null,
    n       int not null
);
create index gate_marks_of_gate on mainspring.gate_marks (gate_id);

-- Rises with every change of a gate. A claim reads it, and so knows whether the gates that its server remembers are current.
create table mainspring.gate_revision (
    only_row boolean primary key default true check (only_row),
    revision bigint not null
);
insert into mainspring.gate_revision (revision) values (0);

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

-- How many jobs of a tenant fire in each minute of the days ahead, for tenants with very many jobs: the heat map cannot
-- evaluate a million schedules for a request. Unlogged: it is worked out anew every few minutes.
create unlogged table mainspring.forecasts (
    tenant_id int primary key,
    as_of     timestamptz not null,
    forecast  json not null
);

-- One server at a time works it out. due_at: when the next one may begin, also if the last one has died.
create unlogged table mainspring.forecast_pass (
    only_row   boolean primary key default true check (only_row),
    claimed_at timestamptz not null,
    due_at     timestamptz not null
);

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
    flow_id       uuid primary key,
    container     uuid not null unique,
    tenant_id     int not null,
    job_id        text not null,
    generation    int not null,
    version       int not null,
    block         bigint not null unique,
    prefix        uuid not null unique,
    state         smallint not null,
    steps         int not null,
    numbers       int not null,
    maps          int not null default 0,
    made          int not null default 0,
    reruns        smallint not null default 0,
    lane_id       int not null,
    scheduled_for timestamptz not null,
    name          text,
    parameters    json,
    spec          json,
    stop_reason   text,
    started_at    timestamptz not null default clock_timestamp(),
    ended_at      timestamptz
) with (fillfactor = 70);
create index flows_at_work on mainspring.flows (state, flow_id) where state <> 4;
create index flows_ended on mainspring.flows (ended_at) where ended_at is not null;
create index flows_of_job on mainspring.flows (tenant_id, job_id, flow_id);

-- The steps (by their place in the definition) that ran again, with numbers from first_number on, in this order.
-- A rerun may repeat only those members of a map that did not succeed. maps: the places of the mapped steps of which it does.
create table mainspring.flow_reruns (
    flow_id      uuid not null,
    rerun        smallint not null,
    first_number int not null,
    steps        int[] not null,
    version      int not null,
    container    uuid not null,
    from_step    text,
    created_at   timestamptz not null default clock_timestamp(),
    maps         int[],
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
-- origin: the earlier run of the step; what its other members have done counts here too. repeats: how many members run
-- again; null: all of them.
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
    created_at   timestamptz not null default clock_timestamp(),
    origin       uuid,
    repeats      int
) with (fillfactor = 50);
create index fanouts_at_work on mainspring.fanouts (run_id) where state <> 3;
create index fanouts_of_flow on mainspring.fanouts (flow_id);

-- The list of a mapped step, 1,000 items in a chunk.
-- Of a fan-out with `repeats`, a chunk has pairs of index and item, for those of its thousand indexes that run again.
-- position: how many members come before them.
create table mainspring.fanout_items (
    run_id   uuid not null,
    chunk    int not null,
    items    json not null,
    position int,
    primary key (run_id, chunk)
);

-- The definitions of workflows, one for each version. A workflow is a job with the same id; its spec and those of its runs
-- name the version. definition: the steps as intake has made them. source: as they were given.
create table mainspring.workflow_versions (
    tenant_id   int not null,
    workflow_id text not null,
    generation  int not null,
    version     int not null,
    steps       int not null,
    definition  json not null,
    source      json not null,
    created_at  timestamptz not null default clock_timestamp(),
    created_by  text,
    primary key (tenant_id, workflow_id, generation, version)
);

-- What a WAITING run waits for. for_time: its scheduled_for. since: the fire of its job before it. looked: whether it is
-- known what of the parent it waits for; then parent_run is the run, or null for the next success. parent_end: how that has
-- ended (ParentEnd), and parent_run which run it was. cause: the job that failed, if not the parent itself.
create table mainspring.job_waits (
    run_id     uuid not null,
    tenant_id  int not null,
    parent     text not null,
    for_time   timestamptz not null,
    since      timestamptz,
    looked     boolean not null default false,
    parent_run uuid,
    parent_end smallint,
    cause      text,
    primary key (run_id, parent)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index job_waits_to_look_at on mainspring.job_waits (run_id) where not looked;
-- The runs that wait for a job and know for what, page by page.
create index job_waits_known on mainspring.job_waits (tenant_id, parent, run_id) where parent_end is null and looked;

-- Sessions of browsers. A session and a link have the rights of their token, and end with it. Both are found by the hash
-- of a secret of 256 bits. expires_at: the end, however much the session is used. seen_at: the last use, to a few minutes.
create table mainspring.sessions (
    session_id  uuid primary key,
    secret_hash bytea not null unique,
    token_id    uuid not null,
    created_at  timestamptz not null default clock_timestamp(),
    seen_at     timestamptz not null default clock_timestamp(),
    expires_at  timestamptz not null
);
create index sessions_by_end on mainspring.sessions (expires_at);

-- Links that sign in once. A used one is deleted.
create table mainspring.sign_in_links (
    code_hash  bytea primary key,
    token_id   uuid not null,
    expires_at timestamptz not null
);
create index sign_in_links_by_end on mainspring.sign_in_links (expires_at);

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

-- Operations: one verb on many jobs, runs or dead letters, chosen by ids or by a filter. They are carried out in slices.
-- count: how many were chosen when it began; exact: whether that was counted to the end. expected: the number that was
-- confirmed. place: where the next slice begins. done and failed: how many were dealt with. failures: the first refusals.
-- reason: why it ended before all were dealt with.
create table mainspring.operations (
    operation_id uuid primary key,
    tenant_id    int not null,
    target       text not null,
    verb         text not null,
    filter       json,
    ids          text[],
    state        smallint not null,
    count        int not null,
    exact        boolean not null,
    expected     int,
    place        text,
    done         int not null default 0,
    failed       int not null default 0,
    failures     json not null default '[]',
    reason       text,
    requested_by text not null,
    created_at   timestamptz not null default clock_timestamp(),
    updated_at   timestamptz not null default clock_timestamp(),
    ended_at     timestamptz
) with (fillfactor = 50);
create index operations_newest on mainspring.operations (tenant_id, operation_id);
create index operations_at_work on mainspring.operations (operation_id) where state = 1;
