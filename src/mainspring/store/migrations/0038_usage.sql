-- stage: pre
-- What the processes of attempts have used: {"cpu_s", "rss_peak", "rss", "samples"}. Runs without processes have none.
alter table mainspring.runs add column usage json;
alter table mainspring.run_history add column usage json;
alter table mainspring.attempts add column usage json;
