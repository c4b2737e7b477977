-- stage: pre

-- clock_off: by how many seconds the clock of the machine differs from that of the database, as the node measured it.
alter table mainspring.nodes add column clock_off real;

-- keep_until: how long the output is kept, if the job says so; null: as long as the run.
alter table mainspring.run_logs add column keep_until timestamptz;
create index run_logs_kept on mainspring.run_logs (keep_until) where keep_until is not null;

-- external: where the value is, if it is in a store outside; then sealed is empty.
alter table mainspring.secrets add column external json;

-- Pauses that were forgotten. status: PAUSED.
create index jobs_paused on mainspring.jobs (tenant_id, updated_at) where status = 2;
