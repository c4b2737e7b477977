-- stage: pre
-- Lists of the jobs of a queue or a task, in the order of the list: their lanes, one after the other.
create index jobs_by_lane on mainspring.jobs (tenant_id, lane_id, created_at, job_id);
