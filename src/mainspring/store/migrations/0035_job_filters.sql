-- stage: pre
-- Lists of the jobs of an owner, in the order of the list. Jobs without an owner have no entry.
create index jobs_by_owner on mainspring.jobs (tenant_id, (spec ->> 'owner'), created_at, job_id)
    where spec ->> 'owner' is not null;
