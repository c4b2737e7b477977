"""The warm child: an interpreter of its own that has the application loaded and runs its process tasks, one at a time.

It is started by worker/executors/process/child.py as `python -m mainspring.worker.executors.process.warm module:app`,
speaks frames.py on descriptor 3, and its stdout and stderr are the run's log.
"""
