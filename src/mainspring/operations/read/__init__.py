"""Reading: jobs, runs, queues, workers, timelines, why a run waits."""
