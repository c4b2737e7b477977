-- stage: post
-- The servers take this migration as the sign that no older server is left (workflows.sql, flows_known): that one would end
-- a step run, and its joins would not count it. No workflow run starts before.
create index flows_of_job on mainspring.flows (tenant_id, job_id, flow_id);
