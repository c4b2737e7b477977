-- stage: pre
-- Jobs after jobs. A job without edges has nothing of this.

-- Bits (domain/dependencies.py): other jobs depend on it, its runs WAIT, it fires after others. Null: none of them.
alter table mainspring.jobs add column edges smallint;

-- An edge: child depends on parent, or fires after it. fired_for: the last fire of the child. satisfied_at, satisfied_run,
-- satisfied_end: of an `after` edge, the end of the parent that counts since then.
alter table mainspring.job_edges
    add column after         boolean not null default false,
    add column fired_for     timestamptz,
    add column satisfied_run uuid,
    add column satisfied_end smallint;
create index job_edges_of_child on mainspring.job_edges (tenant_id, child);

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
create index job_waits_for_parent on mainspring.job_waits (tenant_id, parent) where parent_end is null;
