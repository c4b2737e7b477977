-- A witness inside the database: every change of state, written by trigger in the same transaction.
-- `process` is the label that the arena gave the process in its connection URL.
create schema cluster_audit;

create table cluster_audit.events (
    seq      bigint generated always as identity primary key,
    at       timestamptz not null default clock_timestamp(),
    began    timestamptz not null default transaction_timestamp(),
    tx       bigint not null default txid_current(),
    process  text not null default coalesce(current_setting('arena.process', true), 'nobody'),
    tbl      text not null,
    op       text not null,
    old      jsonb,
    new      jsonb
);
-- Tests ask twenty times a second which nodes are alive.
create index on cluster_audit.events (process) where tbl = 'nodes';

create function cluster_audit.note() returns trigger language plpgsql as $$
begin
    insert into cluster_audit.events (tbl, op, old, new)
    values (tg_argv[0], left(tg_op, 1),
            case when tg_op <> 'INSERT' then to_jsonb(old) - 'payload' end,
            case when tg_op <> 'DELETE' then to_jsonb(new) - 'payload' end);
    return null;
end
$$;

create trigger note after insert or update or delete on mainspring.runs
    for each row execute function cluster_audit.note('runs');
create trigger note after insert or update or delete on mainspring.run_history
    for each row execute function cluster_audit.note('run_history');
create trigger note after insert or update or delete on mainspring.jobs
    for each row execute function cluster_audit.note('jobs');
create trigger note after insert on mainspring.missed_fires
    for each row execute function cluster_audit.note('missed_fires');
create trigger note after insert on mainspring.attempts
    for each row execute function cluster_audit.note('attempts');
create trigger note after insert on mainspring.nodes
    for each row execute function cluster_audit.note('nodes');
create trigger note_birth after insert on mainspring.workers
    for each row execute function cluster_audit.note('workers');
create trigger note after update on mainspring.workers
    for each row when (old.state <> new.state) execute function cluster_audit.note('workers');
-- Renewals change neither owner nor epoch, and there are 128 a second of them.
create trigger note after update on mainspring.shard_leases
    for each row when (old.owner is distinct from new.owner or old.epoch <> new.epoch)
    execute function cluster_audit.note('shard_leases');
create trigger note_birth after insert on mainspring.gates
    for each row execute function cluster_audit.note('gates');
create trigger note after update on mainspring.gates
    for each row when (old.version <> new.version) execute function cluster_audit.note('gates');
create trigger note after insert on mainspring.lanes
    for each row execute function cluster_audit.note('lanes');
insert into cluster_audit.events (tbl, op, new) select 'lanes', 'I', to_jsonb(l) from mainspring.lanes l;
create trigger note after insert or update on mainspring.limits
    for each row execute function cluster_audit.note('limits');
create trigger note_birth after insert on mainspring.limit_keys
    for each row execute function cluster_audit.note('limit_keys');
create trigger note after update on mainspring.limit_keys
    for each row when (old.in_use <> new.in_use) execute function cluster_audit.note('limit_keys');
create trigger note_birth after insert on mainspring.backfills
    for each row execute function cluster_audit.note('backfills');
create trigger note after update on mainspring.backfills
    for each row when (old.state <> new.state or old.concurrency <> new.concurrency)
    execute function cluster_audit.note('backfills');
create trigger note after insert on mainspring.workflow_versions
    for each row execute function cluster_audit.note('workflow_versions');
create trigger note after insert or update on mainspring.flows
    for each row execute function cluster_audit.note('flows');
create trigger note after insert on mainspring.flow_reruns
    for each row execute function cluster_audit.note('flow_reruns');
create trigger note after insert or update on mainspring.fanouts
    for each row execute function cluster_audit.note('fanouts');

-- Events with their payloads, the events that each run got, and what each step waits for.
create function cluster_audit.note_whole() returns trigger language plpgsql as $$
begin
    insert into cluster_audit.events (tbl, op, old, new)
    values (tg_argv[0], left(tg_op, 1), case when tg_op <> 'INSERT' then to_jsonb(old) end,
            case when tg_op <> 'DELETE' then to_jsonb(new) end);
    return null;
end
$$;

create function cluster_audit.note_payload() returns trigger language plpgsql as $$
begin
    insert into cluster_audit.events (tbl, op, new)
    values (tg_argv[0], 'I', jsonb_build_object('run_id', new.run_id, 'job_id', new.job_id, 'payload', new.payload));
    return null;
end
$$;

create trigger note_change after update on mainspring.events
    for each row when (old.payload::text is distinct from new.payload::text or old.name <> new.name or old.key <> new.key)
    execute function cluster_audit.note_whole('events');
create trigger note_whole after insert or delete on mainspring.events
    for each row execute function cluster_audit.note_whole('events');
create trigger note_whole after insert or delete on mainspring.waits
    for each row execute function cluster_audit.note_whole('waits');
create trigger note_payload after insert on mainspring.runs
    for each row when (new.payload::jsonb ?| array['event', 'events'])
    execute function cluster_audit.note_payload('given_events');
create trigger note_begun after update on mainspring.runs
    for each row when (new.state = 3 and old.started_at is null and new.started_at is not null
                       and new.payload::jsonb ?| array['sleep', 'wait', 'workflow'])
    execute function cluster_audit.note_payload('begun_waits');
