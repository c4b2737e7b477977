"""The settings of a cluster on one machine. Those that decide what a failover may lose are as in
deploy/patroni/patroni.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

# Patroni accepts no shorter `ttl`: so long lives the lock of a primary that has vanished.
FAILOVER: dict[str, Any] = {
    "ttl": 20,
    "loop_wait": 2,
    "retry_timeout": 6,
    "maximum_lag_on_failover": 1_048_576,
    # A commit is acknowledged when a standby has it, and only such a standby is promoted. Without one nothing is
    # written.
    "synchronous_mode": True,
    "synchronous_mode_strict": True,
    "synchronous_node_count": 1,
    # Another node takes over at once when PostgreSQL crashes. Its own crash recovery would take longer.
    "primary_start_timeout": 0,
    "failsafe_mode": True,
}
_PARAMETERS: dict[str, Any] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_level": "replica",
    "hot_standby": "on",
    "max_connections": 100,
    "max_wal_senders": 8,
    "max_replication_slots": 8,
    "wal_keep_size": "256MB",
    "max_wal_size": "512MB",
    "shared_buffers": "64MB",
    "jit": "off",
    # An old primary that does not hear from a standby ends the connection.
    "wal_sender_timeout": "5s",
    "wal_receiver_timeout": "5s",
    "wal_receiver_status_interval": "1s",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_ACCESS = (
    "local all all scram-sha-256",
    "host all all 127.0.0.1/32 scram-sha-256",
    "host replication replicator 127.0.0.1/32 scram-sha-256",
)
ADDRESS = "127.0.0.1"


class Ports(NamedTuple):
    """Of one node."""

    etcd: int
    etcd_peers: int
    patroni: int
    postgres: int


class Passwords(NamedTuple):
    superuser: str
    replicator: str
    rewinder: str
    rest: str


def etcd_command(program: Path, name: str, folder: Path, members: dict[str, Ports]) -> list[str]:
    own = members[name]
    peers = ",".join(f"{member}=http://{ADDRESS}:{ports.etcd_peers}" for member, ports in members.items())
    options = {
        "name": name,
        "data-dir": str(folder),
        "listen-client-urls": f"http://{ADDRESS}:{own.etcd}",
        "advertise-client-urls": f"http://{ADDRESS}:{own.etcd}",
        "listen-peer-urls": f"http://{ADDRESS}:{own.etcd_peers}",
        "initial-advertise-peer-urls": f"http://{ADDRESS}:{own.etcd_peers}",
        "initial-cluster": peers,
        "initial-cluster-token": "mainspring",
        # The members share two cores with everything else.
        "heartbeat-interval": "250",
        "election-timeout": "2500",
        "auto-compaction-retention": "1h",
        "log-level": "warn",
    }
    return [str(program), *(f"--{option}={value}" for option, value in options.items())]


def patroni_settings(
    name: str, folder: Path, programs: Path, members: dict[str, Ports], passwords: Passwords
) -> dict[str, Any]:
    """The content of patroni.yml."""
    own = members[name]
    return {
        "scope": "mainspring",
        "name": name,
        "log": {"level": "INFO"},
        "restapi": {
            "listen": f"{ADDRESS}:{own.patroni}",
            "connect_address": f"{ADDRESS}:{own.patroni}",
            "authentication": {"username": "patroni", "password": passwords.rest},
        },
        "etcd3": {"hosts": [f"{ADDRESS}:{ports.etcd}" for ports in members.values()]},
        "bootstrap": {
            "dcs": {
                **FAILOVER,
                "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": _PARAMETERS},
            },
            "initdb": [
                {"encoding": "UTF8"}, "no-locale", "data-checksums",
                {"auth-host": "scram-sha-256"}, {"auth-local": "scram-sha-256"},
            ],
        },
        "postgresql": {
            "listen": f"{ADDRESS}:{own.postgres}",
            "connect_address": f"{ADDRESS}:{own.postgres}",
            "data_dir": str(folder / "postgres"),
            "bin_dir": str(programs),
            "pgpass": str(folder / "pgpass"),
            "pg_hba": list(_ACCESS),
            "parameters": {"unix_socket_directories": str(folder)},
            "remove_data_directory_on_rewind_failure": True,
            "authentication": {
                "superuser": {"username": "postgres", "password": passwords.superuser},
                "replication": {"username": "replicator", "password": passwords.replicator},
                "rewind": {"username": "rewinder", "password": passwords.rewinder},
            },
        },
        "watchdog": {"mode": "off"},
    }  # fmt: skip
