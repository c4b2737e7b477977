"""The processes: up, server, scheduler, worker. Each module builds one from its parts."""
