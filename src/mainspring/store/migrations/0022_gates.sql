-- stage: pre
-- Gates: limits of a queue, or of all queues of a tenant, at the claim. Runs behind a gate stay QUEUED.

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
create table mainspring.gate_marks (gate_id int not null, n int not null);
create index gate_marks_of_gate on mainspring.gate_marks (gate_id);

-- Rises with every change of a gate. A claim reads it, and so knows whether the gates that its server remembers are current.
create table mainspring.gate_revision (
    only_row boolean primary key default true check (only_row),
    revision bigint not null
);
insert into mainspring.gate_revision (revision) values (0);

-- Whether the run was claimed before its gate was set: its worker does not know that it is exclusive.
alter table mainspring.runs add column adopted boolean;

-- For the count of what waits in a queue.
create index runs_held_in_lane on mainspring.runs (lane_id) where state = 4;
