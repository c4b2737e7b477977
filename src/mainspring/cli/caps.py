"""The options of `worker` and `up` that say how much of the machine runs may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mainspring.worker.processes.caps import Caps

_NONE = "no cap"
_LEAST_RUN, _LEAST_ALL = 1024**2, 32 * 1024**2  # bytes; a warm interpreter of process tasks takes about 30 MB
_MOST_PROCESSES = 2**22
_MOST_CORES = 10_000.0

RunMaxMemoryOption = Annotated[
    str | None,
    typer.Option(
        "--run-max-memory",
        metavar="SIZE",
        envvar="MAINSPRING_RUN_MAX_MEMORY",
        help="The memory of each run, such as 2GiB or 25%, even if its job asks for more. 0: no cap.",
        show_default=_NONE,
    ),
]
RunMaxProcessesOption = Annotated[
    int | None,
    typer.Option(
        "--run-max-processes",
        metavar="N",
        envvar="MAINSPRING_RUN_MAX_PROCESSES",
        min=0,
        max=_MOST_PROCESSES,
        help="The processes and threads of each run, even if its job asks for more. 0: no cap.",
        show_default="1024",
    ),
]
RunMaxCpuOption = Annotated[
    str | None,
    typer.Option(
        "--run-max-cpu",
        metavar="TIME",
        envvar="MAINSPRING_RUN_MAX_CPU",
        help="The CPU time of each run, such as 10m, even if its job asks for more. 0: no cap.",
        show_default=_NONE,
    ),
]
MaxMemoryOption = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        envvar="MAINSPRING_MAX_MEMORY",
        help="The memory of all runs together, such as 8GiB or 50%. If they use more, the largest is ended. 0: no cap.",
        show_default="80%",
    ),
]
MaxProcessesOption = Annotated[
    int | None,
    typer.Option(
        "--max-processes",
        metavar="N",
        envvar="MAINSPRING_MAX_PROCESSES",
        min=0,
        max=_MOST_PROCESSES,
        help="The processes and threads of all runs together. If they have more, the largest is ended. 0: no cap.",
        show_default="80% of what the machine can have",
    ),
]
MaxCpusOption = Annotated[
    float | None,
    typer.Option(
        "--max-cpus",
        metavar="N",
        envvar="MAINSPRING_MAX_CPUS",
        min=0,
        max=_MOST_CORES,
        help="The cores that all runs together may use, such as 1.5. 0: no cap.",
        show_default=_NONE,
    ),
]


def read_caps(
    run_memory: str | None,
    run_processes: int | None,
    run_cpu: str | None,
    memory: str | None,
    processes: int | None,
    cpus: float | None,
) -> Caps:
    """The caps that these options name, and otherwise the defaults. Raises InvalidInput."""
    from mainspring.domain.durations import parse_duration
    from mainspring.worker.processes.caps import Caps, default_caps

    usual = default_caps()
    no_time = run_cpu is None or run_cpu.strip() == "0"
    return Caps(
        run_memory=_size(run_memory, "run_max_memory", usual.run_memory, least=_LEAST_RUN),
        run_processes=usual.run_processes if run_processes is None else run_processes or None,
        run_cpu=None if run_cpu is None or no_time else parse_duration(run_cpu, "run_max_cpu", least=0.1),
        memory=_size(memory, "max_memory", usual.memory, least=_LEAST_ALL),
        processes=usual.processes if processes is None else processes or None,
        cpus=cpus or None,
    )


def flags_of(**given: float | str | None) -> dict[str, str]:
    """Return the given options as flags for another command. The keys are their names with underscores."""
    return {f"--{name.replace('_', '-')}": str(value) for name, value in given.items() if value is not None}


def _size(text: str | None, field: str, usual: int | None, *, least: int) -> int | None:
    from mainspring.domain.errors import InvalidInput
    from mainspring.domain.sizes import parse_size
    from mainspring.worker.processes.caps import share_of_memory

    hint = 'write "8GiB", "50%" of the memory of the machine, or 0 for no cap'
    if text is None:
        return usual
    text = text.strip()
    if text == "0":
        return None
    if not text.endswith("%"):
        return parse_size(text, field, least=least, hint=hint)
    try:
        percent = float(text[:-1])
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise InvalidInput(f"{text!r} is not a share of the memory", code="invalid_size", field=field, hint=hint)
    return share_of_memory(percent)
