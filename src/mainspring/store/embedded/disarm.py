"""Removes what another user may have left in a data folder while its superuser was open to every local user.

Everything runs in single-user mode, where neither settings of roles nor event triggers apply, with `search_path` set to
pg_catalog. Each statement can be repeated. Nothing of the user's data is dropped: functions and wrappers that would run
programs fail when they are used, until the superuser makes them again.
"""

from __future__ import annotations

import re

# Objects of initdb have smaller ids; the last one is the language plpgsql. A server gives ids from 16384 on, the
# single-user mode those after plpgsql. The bootstrap superuser has the id 10, roles of PostgreSQL have ids below 12000.
FIRST_NORMAL = "(select least(16384, (select oid::int8 + 1 from pg_language where lanname = 'plpgsql'))::oid)"
_DISABLED = "disabled by mainspring"
_MARK = "mainspring found"
_FOUND = re.compile(rf"{_MARK} (\w+) ([0-9a-f]+)\b")

# Settings with which PostgreSQL runs programs, loads libraries, reads other files or lets others in. The command line
# has them, so that the files in the data folder cannot change them.
SAFE_SETTINGS = {
    "external_pid_file": "",
    "shared_preload_libraries": "",
    "session_preload_libraries": "",
    "local_preload_libraries": "",
    "dynamic_library_path": "$libdir",
    "jit_provider": "llvmjit",
    "archive_mode": "off",
    "archive_command": "",
    "archive_library": "",
    "archive_cleanup_command": "",
    "restore_command": "",
    "recovery_end_command": "",
    "primary_conninfo": "",
    "max_logical_replication_workers": "0",
    "ssl": "off",
    "ssl_passphrase_command": "",
    "unix_socket_group": "",
    "allow_system_table_mods": "off",
    "log_destination": "stderr",
    "logging_collector": "off",
}
_SAFE_SETTINGS_OF_18 = {"extension_control_path": "$system"}
_FILES = ("hba_file", "ident_file")
_SOCKETS = ("listen_addresses", "unix_socket_directories", "unix_socket_permissions")


def safe_settings(data: str, major: int) -> dict[str, str]:
    """The `-c` options for the data folder that PostgreSQL reaches as `data`."""
    places = {"data_directory": data, "hba_file": f"{data}/pg_hba.conf", "ident_file": f"{data}/pg_ident.conf"}
    return places | SAFE_SETTINGS | (_SAFE_SETTINGS_OF_18 if major >= 18 else {})


def _found(kind: str, name: str) -> str:
    """An expression of SQL. Names are in hex, because they may contain anything."""
    return f"'{_MARK} {kind} ' || encode(convert_to({name}, 'UTF8'), 'hex')"


def shown_names(shown: str, kind: str) -> list[str]:
    """The names of one kind in the output of the statements below."""
    return [bytes.fromhex(name).decode("utf-8", "surrogateescape") for of, name in _FOUND.findall(shown) if of == kind]


def cluster_sql(role: str, backup_role: str, major: int) -> str:
    """Roles, memberships and settings. `role` and `backup_role` have just got theirs. Shows the
    `role`s and `setting`s that it changes, and every `database`."""
    settings = [*_FILES, *_SOCKETS, *SAFE_SETTINGS, *(_SAFE_SETTINGS_OF_18 if major >= 18 else ())]
    listed = ", ".join(f"'{name}'" for name in ("data_directory", *settings))
    resets = "\n\n".join(f"alter system reset {name};" for name in settings)
    rights = "rolsuper or rolcreaterole or rolreplication or rolbypassrls"
    others = f"oid <> 10 and rolname not in ('{role}', '{backup_role}')"
    # What initdb grants to pg_monitor stays.
    dangerous = f"""
        from pg_auth_members m join pg_roles r on r.oid = m.roleid join pg_roles u on u.oid = m.member
        join pg_roles g on g.oid = m.grantor
        where u.rolname in ('{role}', '{backup_role}')
           or m.roleid < 12000 and (u.rolname, r.rolname) not in (
                ('pg_monitor', 'pg_read_all_settings'), ('pg_monitor', 'pg_read_all_stats'),
                ('pg_monitor', 'pg_stat_scan_tables'))
    """
    unsafe = """not exists (
            select from pg_settings s where s.context = 'user' and s.name <> 'local_preload_libraries'
              and lower(s.name) = lower(split_part(c, '=', 1)))"""
    return f"""
select distinct {_found("setting", "name")} from pg_file_settings where name in ({listed});

select {_found("setting", "split_part(c, '=', 1)")} from pg_db_role_setting, unnest(setconfig) c where {unsafe};

select {_found("setting", "parname")} from pg_parameter_acl;

select {_found("role", "rolname")} from pg_authid
where {others} and ({rights} or rolname in (select u.rolname {dangerous}));

select {_found("database", "datname")} from pg_database where datconnlimit <> -2 order by oid;

update pg_authid set rolsuper = false, rolcreaterole = false, rolreplication = false, rolbypassrls = false
where {others} and ({rights});

do $$
declare membership record;
begin
    loop
        select r.rolname as granted, u.rolname as member, g.rolname as grantor into membership {dangerous} limit 1;
        exit when not found;
        execute format('revoke %I from %I granted by %I cascade', membership.granted, membership.member,
                       membership.grantor);
    end loop;
end $$;

update pg_db_role_setting set setconfig = array(select c from unnest(setconfig) c where not ({unsafe}));

delete from pg_db_role_setting where setconfig = '{{}}';

delete from pg_shdepend where classid = 'pg_parameter_acl'::regclass;

delete from pg_parameter_acl;

{resets}
"""


# In all languages but sql and plpgsql, a function may do what the server may. Those of extensions stay if their code is
# the installation's.
_UNSAFE_LANGUAGES = """
    select l.oid from pg_language l left join pg_proc h on h.oid = l.lanplcallfoid
    where l.oid <> 14 and (l.lanname, h.probin, h.prosrc) is distinct from
        ('plpgsql'::name, '$libdir/plpgsql'::text, 'plpgsql_call_handler'::text)"""
_UNSAFE_FUNCTIONS = f"""
    p.oid >= {FIRST_NORMAL} and p.prokind <> 'a' and p.prosrc <> '{_DISABLED}'
    and p.prolang in ({_UNSAFE_LANGUAGES})
    and not (
        exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
        and (p.prolang = (select oid from pg_language where lanname = 'c') and p.probin ~ '^[$]libdir/[[:alnum:]_-]+$'
             or p.prolang = (select oid from pg_language where lanname = 'internal')
                and exists (select from pg_proc b where b.oid < {FIRST_NORMAL} and b.prolang = p.prolang
                            and b.prosrc = p.prosrc and b.proacl is null)))
"""
_FIRST_PRIVILEGES = """(
    select i.initprivs from pg_init_privs i
    where i.classoid = 'pg_proc'::regclass and i.objoid = p.oid and i.objsubid = 0)"""
# Shows the `function`s, `wrapper`s and `trigger`s that it disables.
DATABASE_SQL = f"""
update pg_proc p set proacl = {_FIRST_PRIVILEGES}
where p.oid < {FIRST_NORMAL} and p.proacl is distinct from {_FIRST_PRIVILEGES};

update pg_proc set prosecdef = false where oid < {FIRST_NORMAL} and prosecdef;

update pg_language set lanpltrusted = false, lanacl = null
where oid in ({_UNSAFE_LANGUAGES}) and (lanpltrusted or lanacl is not null);

select {_found("function", "p.oid::regprocedure::text")} from pg_proc p where {_UNSAFE_FUNCTIONS};

update pg_proc p set prolang = (select oid from pg_language where lanname = 'internal'), prosrc = '{_DISABLED}',
    probin = null
where {_UNSAFE_FUNCTIONS};

select {_found("wrapper", "fdwname")} from pg_foreign_data_wrapper where fdwhandler <> 0;

select {_found("trigger", "evtname")} from pg_event_trigger where evtenabled <> 'D';

do $$
declare change text;
begin
    for change in
        select format('alter foreign data wrapper %I no handler', fdwname) from pg_foreign_data_wrapper
        where fdwhandler <> 0
        union all
        select format('alter event trigger %I disable', evtname) from pg_event_trigger where evtenabled <> 'D'
    loop
        execute change;
    end loop;
end $$;
"""
