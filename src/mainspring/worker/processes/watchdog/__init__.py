"""The watchdog: a separate process that starts all commands of a worker, and ends them when the worker cannot.

It is started without `site` and imports only the standard library, so that it starts in about 20 ms and stays small.
Nothing here may import from the rest of Mainspring. The watchdog is the child subreaper of everything it starts:
processes that fork twice or leave their session stay below it.

program             the watchdog: forks supervisors, takes deadlines, kills everything when the worker is gone
supervisor          runs one command at a time for the worker, over its own socket
supervised_command  a command under a supervisor, until the last of its processes is gone
own_state           what a command can change about its supervisor
namespaces          a supervisor with a pid namespace of its own, from which no process escapes
covers              what commands in a namespace must not see
own_root            a working folder that no list of mounts names
child               what a new process does before it executes the command
tree                the processes below a process: find, signal, kill
resource_limits     what a process tree may use, and whether it uses more
cpu_use, memory_use, disk_use
                    what a process tree uses, also through ended processes, unmapped memory and deleted files
all_runs            what all runs of the worker may use together
cgroup              the same limits enforced by the kernel, where control groups are available

The other ends of the two sockets are worker/processes/watchdog_client.py and worker/processes/command.py. On a system
without subreapers and /proc, a command has its process group instead of a tree.
"""
