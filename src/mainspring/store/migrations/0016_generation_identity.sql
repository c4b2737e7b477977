-- stage: post
-- The generation is part of a run's identity. The servers take this migration as the sign that no older server is left
-- (jobs.sql, generations_known): that one would fire and end the runs of a later generation as runs of the first.
create unique index runs_identity_of_generation
    on mainspring.runs (tenant_id, job_id, generation, trigger, scheduled_for)
    nulls not distinct where job_id is not null;
drop index mainspring.runs_identity;
alter index mainspring.runs_identity_of_generation rename to runs_identity;
