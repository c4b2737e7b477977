"""Three nodes of etcd, Patroni and PostgreSQL on this machine, to try a failover and to measure it."""
