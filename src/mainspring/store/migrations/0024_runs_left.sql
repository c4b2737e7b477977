-- stage: pre
-- How many runs the schedule of a job will still make, if it has max_runs. A fire takes from it in the statement that
-- advances the job.
alter table mainspring.jobs add column runs_left int;
