"""The warm child: a separate interpreter that has loaded the application and runs its process tasks, one at a time.

worker/executors/process/child.py starts it as `python -m mainspring.worker.executors.process.warm module:app`. It uses
the messages of frames.py on descriptor 3. Its stdout and stderr are the log of the run.
"""
