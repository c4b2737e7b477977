-- stage: pre
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
