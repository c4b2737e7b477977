"""The checks of a sql task. Whether the statement is valid, only its database knows."""

from __future__ import annotations

import msgspec

from mainspring.domain.errors import InvalidInput, PayloadTooLarge
from mainspring.domain.intake.kind_checks import CallChecks, check_value
from mainspring.domain.texts import check_prose, shown
from mainspring.kernel.config import MAX_PAYLOAD_BYTES
from mainspring.kinds.sql import KIND
from mainspring.kinds.sql.call import SqlCall
from mainspring.kinds.sql.options import CONNECTION_NAME
from mainspring.wire.execution import RunSetup

_LONGEST_STATEMENT = 128 * 1024
_MOST_PARAMETERS = 1000


class SqlChecks(CallChecks):
    a_task = "a sql task"
    noun = "a statement"
    example = '{"connection": "warehouse", "statement": "refresh materialized view sales"}'

    def check(self, given: SqlCall, field: str) -> SqlCall:
        if not CONNECTION_NAME.match(given.connection):
            raise InvalidInput(
                f"{shown(given.connection)} is not the name of a connection",
                field=f"{field}.connection",
                expected="1 to 64 letters, digits, '_', '-' and '.', such as warehouse",
                hint="the worker knows the address: mainspring worker --connection warehouse=FILE",
            )
        if not given.statement.strip():
            raise InvalidInput("the statement is empty", field=f"{field}.statement", expected=self.example)
        check_prose(given.statement, f"{field}.statement")
        if (size := len(given.statement.encode())) > _LONGEST_STATEMENT:
            raise PayloadTooLarge(
                f"the statement has {size} bytes", field=f"{field}.statement",
                expected=f"at most {_LONGEST_STATEMENT} bytes", hint="put it into a function of the database",
            )  # fmt: skip
        if len(given.parameters) > _MOST_PARAMETERS:
            raise InvalidInput(
                "too many parameters", field=f"{field}.parameters", expected=f"at most {_MOST_PARAMETERS}",
                hint="give a list as one parameter, which is passed as JSON",
            )  # fmt: skip
        check_value(given.parameters, f"{field}.parameters", MAX_PAYLOAD_BYTES)
        return SqlCall(**msgspec.structs.asdict(given))

    def check_setup(self, setup: RunSetup) -> None:
        super().check_setup(setup)
        if setup.limits is not None and setup.limits.output is not None:
            raise InvalidInput("limits.output has no effect on a sql task", field="limits.output", hint="leave it out")


CHECKS = SqlChecks(KIND)
