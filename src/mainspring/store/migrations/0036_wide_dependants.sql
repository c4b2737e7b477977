-- stage: pre
-- The runs that wait for a job and know for what, page by page.
create index job_waits_known on mainspring.job_waits (tenant_id, parent, run_id) where parent_end is null and looked;
drop index mainspring.job_waits_for_parent;
