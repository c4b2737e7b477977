"""The watchdog: a process of its own, the root of every process that runs start, that ends them when the worker cannot.

It is started without site and imports nothing but the standard library, so that it is there in about 20 ms and stays
small; nothing here may import from the rest of Mainspring. It is the child subreaper of all that it starts: whatever
double forks, or leaves its session, stays below it.

program   the watchdog itself: forks supervisors, hears of deadlines, and kills all when the worker is gone
supervisor    runs one command at a time, as told by the worker on a socket of its own
charge    a command in its hands: started, limited, signalled, and gone when the last of its processes is
child     what a command's process does before it becomes the command
tree      the processes below one: find, signal, kill
limits    what a tree may use, and whether it uses more
cgroup    the same in the kernel's hands, where cgroup v2 can be used

worker/processes/watchdog_client.py and worker/processes/command.py are the worker's ends of the two conversations. On a
system without subreapers and /proc a command has its process group instead of a tree.
"""
