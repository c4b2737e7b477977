"""The warm child: an interpreter of its own that has the application loaded and runs its process tasks, one at a time.

It is started by executors/process_pool.py as `python -m mainspring.worker.warm module:app`, speaks frames.py on
descriptor 3, and its stdout and stderr are the run's log.
"""
