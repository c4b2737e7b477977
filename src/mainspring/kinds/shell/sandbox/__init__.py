"""The sandbox of shell commands: an allow-list of the system, one writable folder, no network, few system calls.

bubblewrap    builds the command line, and finds out whether the sandbox can be built on this machine
shown_paths   what of the machine a command sees
read_paths    checks what `--sandbox-read` adds to it
seccomp       assembles the filter of system calls
syscalls      the system calls that the filter denies, with their numbers
"""
