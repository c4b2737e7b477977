"""The worker: exchanges with a server, runs what it is given, reports what became of it.

worker          the main loop: starts exchanges, acts on the answers, drains
lease           until when runs may go on; no I/O
lease_enforcer  stops runs when the lease ends, and tells the watchdog the deadline
exchange/       composes exchanges, sends them, decides when the next one starts
execution/      slots and attempts: start, time out, stop, end
executors/      one package for each kind of task: python, process, shell, http
output/         logs and progress of runs on their way to a server
processes/      commands under the watchdog, which kills them if the worker dies, and the parent of the worker process,
                which tells a server then
"""
