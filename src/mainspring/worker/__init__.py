"""The worker: a process that runs attempts. It speaks the exchange over HTTP and never touches SQL.

link          sends an exchange and brings the answer
ledger        what this incarnation holds and has not yet reported; no I/O
appetite      how many runs to hold beyond the slots; no I/O
pace          when the next exchange starts; no I/O
lease         until when runs may go on; no I/O
lease_enforcer  acts on it: stops exclusive runs, says when all must end, tells the watchdog
attempt       one run in our hands, its ending, and the seam that executors fill
runner        slots: starts what is queued, times it out, stops it
executors/    one file per kind: Python functions, shell
watchdog/     a process of its own, the root of all that runs start; kills it when we cannot
watchdog_link our end of it; keeper_line that of one of its supervisors
ward          one command and everything it starts
work_folders  a fresh folder for each attempt
worker        the loop that ties them together, and the drain
"""
