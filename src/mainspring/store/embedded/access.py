"""Who may connect to the embedded PostgreSQL: a role with the tables, and a role that can only replicate, which backups
use; each has a password. No one can log in as superuser.

The roles, their passwords and the database are made in PostgreSQL's single-user mode, before the server starts. So no
socket ever accepts a superuser. Data folders of earlier versions (all users are trusted, everything belongs to the
superuser) are converted in the same steps. What another user may have left there as superuser is disarmed first.

Each step can be repeated. The last one writes pg_hba.conf, which is also the mark that all of them are done.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import Protocol

from mainspring.kernel.config import BACKUP_PASSWORD_FILE_NAME, POSTGRES_PASSWORD_FILE_NAME
from mainspring.kernel.ownership import read_own
from mainspring.kernel.private_files import sync_folder
from mainspring.store.embedded.disarm import DATABASE_SQL, FIRST_NORMAL, cluster_sql, shown_names

DATABASE = "mainspring"
ROLE = "mainspring_owner"
BACKUP_ROLE = "mainspring_backup"
HBA = f"""\
# Written by Mainspring at each start. {ROLE} connects with the password in {POSTGRES_PASSWORD_FILE_NAME}, and
# {BACKUP_ROLE}, which can only replicate, with the one in {BACKUP_PASSWORD_FILE_NAME}.
# The superuser cannot log in: stop Mainspring and use `postgres --single` instead.
local all {ROLE} scram-sha-256
local replication {BACKUP_ROLE} scram-sha-256
local all all reject
"""
_CLOSED = "# Mainspring is setting up access.\nlocal all all reject\n"
_PASSWORDS = {ROLE: POSTGRES_PASSWORD_FILE_NAME, BACKUP_ROLE: BACKUP_PASSWORD_FILE_NAME}
_PASSWORD_BYTES = 32
# The password is 256 random bits, which cannot be guessed. Stretching it would only cost each connection 2 ms.
_SCRAM_ITERATIONS = 1
_SALT_BYTES = 16

_FOUND = "the database exists"
_ROLE_SQL = f"""
do $$
begin
    if not exists (select from pg_roles where rolname = '{ROLE}') then
        create role {ROLE};
    end if;
    if not exists (select from pg_roles where rolname = '{BACKUP_ROLE}') then
        create role {BACKUP_ROLE};
    end if;
end $$;

alter role {ROLE} with login nosuperuser createdb nocreaterole noreplication nobypassrls password '{{verifier}}';

alter role {BACKUP_ROLE} with login nosuperuser nocreatedb nocreaterole replication nobypassrls
    password '{{backup_verifier}}';

select '{_FOUND}' from pg_database where datname = '{DATABASE}';
"""
_CREATE_SQL = f"create database {DATABASE} owner {ROLE};"
_DATABASE_OWNER_SQL = f"""
alter database {DATABASE} owner to {ROLE};

"""
# In every database. Tables and functions of extensions become the role's, too: a superuser can add any to an extension,
# and PostgreSQL runs code of tables and functions with the rights of their owners.
_OWNER_SQL = f"""
do $$
declare change text;
begin
    for change in
        with own as (
            select n.oid from pg_namespace n where n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
        ), belongs_to_extension as (
            select d.classid, d.objid from pg_depend d where d.deptype = 'e'
        ), found as (
            select 1 as place, 'pg_namespace'::regclass::oid as class, n.oid,
                   'schema ' || quote_ident(n.nspname) as what
            from pg_namespace n where n.oid in (select oid from own) and n.nspowner = 10
            union all
            -- sequences of columns follow their table
            select 2, 'pg_class'::regclass::oid, c.oid, 'table ' || c.oid::regclass
            from pg_class c
            where c.oid >= {FIRST_NORMAL} and c.relowner = 10
              and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
              and not exists (select from pg_depend d
                              where d.classid = 'pg_class'::regclass and d.objid = c.oid and c.relkind = 'S'
                                and d.refclassid = 'pg_class'::regclass and d.deptype in ('a', 'i'))
            union all
            select 3, 'pg_proc'::regclass::oid, p.oid, 'routine ' || p.oid::regprocedure
            from pg_proc p join pg_language l on l.oid = p.prolang
            where p.oid >= {FIRST_NORMAL} and p.proowner = 10
              and (p.prokind = 'a' or p.prosecdef or l.lanname not in ('c', 'internal'))
            union all
            select 4, 'pg_type'::regclass::oid, t.oid, 'type ' || t.oid::regtype
            from pg_type t left join pg_class c on c.oid = t.typrelid
            where t.typnamespace in (select oid from own) and t.typowner = 10
              and (t.typtype in ('b', 'd', 'e', 'r') or c.relkind = 'c')
              and not exists (select from pg_type e where e.typarray = t.oid)
        )
        select format('alter %s owner to {ROLE}', what) from found
        where place in (2, 3) or (class, oid) not in (select classid, objid from belongs_to_extension)
        order by place
    loop
        execute change;
    end loop;
end $$;
"""


class SingleUser(Protocol):
    """Runs SQL as superuser in a database, while no server runs. Yields while it waits, and returns the output."""

    def __call__(self, database: str, sql: str) -> Generator[None, None, str]: ...


class Access:
    """The access to the PostgreSQL on `data`, in the data folder `folder` of Mainspring."""

    def __init__(self, folder: Path, data: Path, notices: list[str] | None = None) -> None:
        self.folder = folder
        self._version_file = data / "PG_VERSION"
        self._notices = notices if notices is not None else []
        self.password_file = folder / POSTGRES_PASSWORD_FILE_NAME
        self.backup_password_file = folder / BACKUP_PASSWORD_FILE_NAME
        self.hba_file = data / "pg_hba.conf"

    def is_set_up(self) -> bool:
        try:
            done = self.hba_file.read_bytes() == HBA.encode()
        except FileNotFoundError:
            return False
        return done and all(self._password(role) is not None for role in _PASSWORDS)

    def setting_up(self, single_user: SingleUser, *, fresh: bool) -> Generator[None, None, None]:
        """All steps. A start that was killed in between repeats them. `fresh`: this start has made the data."""
        self._close()
        self._make_passwords()
        found = yield from self._make_role(single_user)
        if not fresh:
            for database in (yield from self._disarm(single_user)):
                yield from self._take_ownership(single_user, database)
        if not found:
            yield from self._make_database(single_user)
        self._open()

    def _close(self) -> None:
        """From here until the last step the folder counts as not set up."""
        replace_file(self.hba_file, _CLOSED)

    def _make_passwords(self) -> None:
        for role, name in _PASSWORDS.items():
            if self._password(role) is None:
                replace_file(self.folder / name, f"*:*:*:{role}:{secrets.token_hex(_PASSWORD_BYTES)}\n")

    def _make_role(self, single_user: SingleUser) -> Generator[None, None, bool]:
        """Returns whether the database exists."""
        password, of_backups = self._password(ROLE), self._password(BACKUP_ROLE)
        assert password is not None
        assert of_backups is not None
        sql = _ROLE_SQL.format(verifier=scram_verifier(password), backup_verifier=scram_verifier(of_backups))
        shown = yield from single_user("postgres", sql)
        return _FOUND in shown

    def _make_database(self, single_user: SingleUser) -> Generator[None, None, None]:
        yield from single_user("postgres", _CREATE_SQL)

    def _disarm(self, single_user: SingleUser) -> Generator[None, None, list[str]]:
        """Returns the databases, ours first."""
        major = int(self._version_file.read_text(encoding="ascii"))
        shown = yield from single_user("postgres", cluster_sql(ROLE, BACKUP_ROLE, major))
        self._log("took the rights of a superuser from the roles", shown_names(shown, "role"))
        self._log("PostgreSQL ignores these settings of its files, roles and databases:", shown_names(shown, "setting"))
        return sorted(shown_names(shown, "database"), key=lambda name: name != DATABASE)

    def _take_ownership(self, single_user: SingleUser, database: str) -> Generator[None, None, None]:
        owner = _DATABASE_OWNER_SQL if database == DATABASE else ""
        shown = yield from single_user(database, DATABASE_SQL + owner + _OWNER_SQL)
        for kind, what in (
            ("function", "functions that can run programs"),
            ("wrapper", "foreign data wrappers"),
            ("trigger", "event triggers"),
        ):
            self._log(f"disabled these {what} in the database {database!a}:", shown_names(shown, kind))

    def _log(self, what: str, names: list[str]) -> None:
        if names:
            self._notices.append(f"{what} {', '.join(ascii(name) for name in sorted(set(names)))}")

    def _open(self) -> None:
        replace_file(self.hba_file, HBA)

    def _password(self, role: str) -> str | None:
        """The password in the file of the role, or None if there is none."""
        content = (read_own(self.folder, _PASSWORDS[role]) or b"").decode("ascii", "replace")
        found = re.fullmatch(rf"\*:\*:\*:{role}:([0-9a-f]{{{2 * _PASSWORD_BYTES}}})\n", content)
        return found[1] if found else None


def scram_verifier(password: str) -> str:
    """What PostgreSQL stores of the password (RFC 5803). With it the password itself is in no statement and no log."""
    salt = secrets.token_bytes(_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _SCRAM_ITERATIONS)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    salt_text, stored_text, server_text = (base64.b64encode(part).decode() for part in (salt, stored_key, server_key))
    return f"SCRAM-SHA-256${_SCRAM_ITERATIONS}:{salt_text}${stored_text}:{server_text}"


def replace_file(path: Path, content: str) -> None:
    """Write a private file of the folder's owner. It appears with its whole content, also after a power failure."""
    owner = path.parent.stat()
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        if owner.st_uid != os.geteuid():
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)
    sync_folder(path.parent)
