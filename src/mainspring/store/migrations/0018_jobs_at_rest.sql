-- stage: pre
-- Lists of jobs by status: paused, cancelled and completed ones are few among those that will fire.
create index jobs_at_rest on mainspring.jobs (tenant_id, created_at, job_id) where status <> 1;
