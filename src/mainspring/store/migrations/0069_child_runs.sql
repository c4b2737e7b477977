-- stage: pre

-- Steps that run another workflow. run_id: of the step. child: the workflow run that it has started, and waits for. state:
-- of domain/workflows/children.py; what is to be done next, or nothing. The row is kept with the workflow run.
create table mainspring.child_runs (
    run_id    uuid primary key,
    tenant_id int not null,
    workflow  text not null,
    state     smallint not null,
    child     uuid,
    began_at  timestamptz not null default clock_timestamp()
);
create index child_runs_to_do on mainspring.child_runs (state, run_id) where state <> 5;
create unique index child_runs_by_child on mainspring.child_runs (child) where child is not null;

-- calls: the workflows that steps of this version run. calls_of: whose workflows these may be; null: anybody's.
alter table mainspring.workflow_versions add column calls text[], add column calls_of uuid;
