"""deploy/patroni for machines, and the cluster on one machine: what decides about losses is the same."""

from __future__ import annotations

from pathlib import Path

import yaml

from mainspring.bench.patroni.settings import FAILOVER, Passwords, Ports, etcd_command, patroni_settings

FOLDER = Path(__file__).parents[2] / "deploy" / "patroni"
MEMBERS = {name: Ports(*range(number, number + 4)) for number, name in enumerate(("one", "two", "three"), start=1000)}
OF_DURABILITY = ("fsync", "synchronous_commit", "full_page_writes", "wal_level", "wal_sender_timeout")


def test_a_failover_on_machines_is_that_of_the_drill() -> None:
    machine = yaml.safe_load((FOLDER / "patroni.yml").read_text())
    here = patroni_settings("one", Path("/nodes/one"), Path("/bin"), MEMBERS, Passwords("a", "b", "c", "d"))
    dcs, same = machine["bootstrap"]["dcs"], here["bootstrap"]["dcs"]
    assert {name: dcs[name] for name in FAILOVER} == FAILOVER
    assert FAILOVER["synchronous_mode"] is True and FAILOVER["synchronous_mode_strict"] is True
    assert FAILOVER["loop_wait"] + 2 * FAILOVER["retry_timeout"] <= FAILOVER["ttl"]
    for name in OF_DURABILITY:
        assert dcs["postgresql"]["parameters"][name] == same["postgresql"]["parameters"][name]
    assert machine["bootstrap"]["initdb"][:3] == here["bootstrap"]["initdb"][:3]


def test_nobody_gets_in_without_a_password_and_nothing_leaves_the_machine() -> None:
    here = patroni_settings("two", Path("/nodes/two"), Path("/bin"), MEMBERS, Passwords("a", "b", "c", "d"))
    assert {line.split()[-1] for line in here["postgresql"]["pg_hba"]} == {"scram-sha-256"}
    assert here["postgresql"]["listen"].startswith("127.0.0.1:") and here["restapi"]["listen"].startswith("127.0.0.1:")
    urls = [part for part in etcd_command(Path("etcd"), "two", Path("/d"), MEMBERS) if "http" in part]
    assert urls and all("http://127.0.0.1:" in url for url in urls)


def test_units_start_what_the_configuration_names() -> None:
    assert "/etc/patroni/patroni.yml" in (FOLDER / "patroni.service").read_text()
    etcd = (FOLDER / "etcd.service").read_text()
    assert "--client-cert-auth" in etcd and "--peer-client-cert-auth" in etcd
