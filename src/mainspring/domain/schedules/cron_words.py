"""A cron expression in words: "At 09:00, Monday to Friday".

The words follow from what the fields match, not from how they are written: `1-5` and `MON-FRI` read the same. Lines
that match different wall times read differently.
"""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.schedules.cron_fields import DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH, SECOND, FieldValues
from mainspring.domain.schedules.cron_hash import all_values, has_hash, without_hash
from mainspring.domain.schedules.wall_clock import WallClock, wall_clock

_MONTHS = (
    "", "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NTH = ("last", "first", "second", "third", "fourth", "fifth")
_SIXTY, _HOURS, _DAYS, _ALL_MONTHS, _WEEK = range(60), range(24), range(1, 32), range(1, 13), range(7)
_MOST_TIMES = 6  # that are written out


def cron_words(cron: str, seed: int | None) -> list[str]:
    """What an expression does, in pieces. Without a seed the values of `H` are not known."""
    if has_hash(cron) and seed is None:
        return _words_with_hash(cron)
    clock = wall_clock(without_hash(cron, seed or 0))
    return [*_time(clock), *_day(clock)]


def listed(words: Sequence[str], last: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _words_with_hash(cron: str) -> list[str]:
    """Fields with `H` as they are written, and the others in words."""
    fields = cron.upper().split()
    fields = ["0"] * (6 - len(fields)) + fields
    hashed = {index for index, field in enumerate(fields) if has_hash(field)}
    clock = wall_clock(" ".join(all_values(i, field)[0] if i in hashed else field for i, field in enumerate(fields)))

    def said(index: int, name: str, values: FieldValues, span: range) -> str:
        return f"{name} {fields[index]}" if index in hashed else _series(values.numbers, span, name)

    seconds = said(SECOND, "second", clock.seconds, _SIXTY)
    minutes, hours = said(MINUTE, "minute", clock.minutes, _SIXTY), said(HOUR, "hour", clock.hours, _HOURS)
    pieces = [f"At {minutes} of {hours}" if fields[SECOND] == "0" else f"At {seconds} of {minutes} of {hours}"]
    if hashed & {DAY_OF_MONTH, DAY_OF_WEEK, MONTH}:
        days = f"day of the month {fields[DAY_OF_MONTH]}" if fields[DAY_OF_MONTH] != "*" else ""
        week = f"day of the week {fields[DAY_OF_WEEK]}" if fields[DAY_OF_WEEK] != "*" else ""
        both = " and " if clock.days.both else " or "
        pieces += ["on " + both.join(filter(None, (days, week)))] if days or week else []
        pieces += [f"in month {fields[MONTH]}"] if fields[MONTH] != "*" else []
    else:
        pieces += _day(clock)
    return [*pieces, "where H is a fixed value per job"]


def _time(clock: WallClock) -> list[str]:
    seconds, minutes, hours = clock.seconds.numbers, clock.minutes.numbers, clock.hours.numbers
    if len(seconds) * len(minutes) * len(hours) <= _MOST_TIMES:
        with_seconds = seconds != [0]
        times = [
            f"{hour:02}:{minute:02}" + (f":{second:02}" if with_seconds else "")
            for hour in hours
            for minute in minutes
            for second in seconds
        ]
        return [f"At {listed(times)}"]
    every_second, every_minute, every_hour = len(seconds) == 60, len(minutes) == 60, len(hours) == 24
    if seconds == [0]:
        if every_minute:
            begin = "Every minute"
        elif (step := _even_step(minutes, 60)) is not None:
            begin = f"Every {step} minutes"
        else:
            begin = f"At {_series(minutes, _SIXTY, 'minute')}"
            return [f"{begin} of every hour" if every_hour else f"{begin} of {_series(hours, _HOURS, 'hour')}"]
    else:
        if every_second:
            begin = "Every second"
        elif (step := _even_step(seconds, 60)) is not None:
            begin = f"Every {step} seconds"
        else:
            begin = f"At {_series(seconds, _SIXTY, 'second')}" + (" of every minute" if every_minute else "")
        if not every_minute:
            begin += f" of {_series(minutes, _SIXTY, 'minute')}"
            return [f"{begin} of every hour" if every_hour else f"{begin} of {_series(hours, _HOURS, 'hour')}"]
    if every_hour:
        return [begin]
    if len(hours) == hours[-1] - hours[0] + 1:
        return [f"{begin} from {hours[0]:02}:00 to {hours[-1]:02}:59"]
    return [f"{begin} of {_series(hours, _HOURS, 'hour')}"]


def _day(clock: WallClock) -> list[str]:
    of_month, of_week, months = clock.days.of_month, clock.days.of_week, clock.months.numbers
    any_day, any_weekday = of_month.bits.bit_count() == 31, of_week.bits.bit_count() == 7
    in_months = [] if len(months) == 12 else [f"in {_named(months, _MONTHS[1:], 1)}"]
    of = "of the month" if len(months) == 12 else f"of {_named(months, _MONTHS[1:], 1)}"
    if (any_day and any_weekday) or (not clock.days.both and (any_day or any_weekday)):
        return in_months or ([] if clock.hours.bits.bit_count() == 24 else ["every day"])
    if any_day:  # both must match, and every date does
        return [_weekdays(of_week, of)] if of_week.nth else [_weekdays(of_week, of), *in_months]
    if any_weekday:
        return [_dates(of_month, of)]
    dates, weekdays = _dates(of_month, "of the month"), _weekdays(of_week, "of the month").removeprefix("on ")
    joined = ", but only on" if clock.days.both else " or on"
    return [f"{dates}{joined} {weekdays}", *in_months]


def _dates(days: FieldValues, of: str) -> str:
    words = []
    if days.bits:
        words.append(f"on {_series(days.numbers, _DAYS, 'day')}")
    if days.last_day:
        words.append("on the last day")
    if days.last_weekday:
        words.append("on the last weekday (Monday to Friday)")
    return f"{listed(words)} {of}"


def _weekdays(week: FieldValues, of: str) -> str:
    words = []
    if week.bits:
        # Weeks begin with Monday here; in cron Sunday is 0.
        numbers = sorted((number + 6) % 7 for number in week.numbers)
        words.append(_named(numbers, _WEEKDAYS, 0, on="" if _is_run(numbers) else "on "))
    nth = sorted(week.nth, key=lambda pair: ((pair[0] + 6) % 7, pair[1] or 6))
    words += [f"on the {_NTH[which]} {_WEEKDAYS[(number + 6) % 7]} {of}" for number, which in nth]
    return listed(words)


def _named(numbers: list[int], names: tuple[str, ...], first: int, on: str = "") -> str:
    if _is_run(numbers):
        return f"{on}{names[numbers[0] - first]} to {names[numbers[-1] - first]}"
    return on + listed([names[number - first] for number in numbers])


def _is_run(numbers: list[int]) -> bool:
    return len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1


def _even_step(numbers: list[int], size: int) -> int | None:
    """The step of values that repeat evenly, also from the last of one hour to the first of the next. They begin with
    0: otherwise the words would not say when."""
    step = numbers[1] if len(numbers) > 1 else size
    return step if numbers == list(range(0, size, step)) and size % step == 0 and step < size else None


def _series(numbers: list[int], span: range, name: str) -> str:
    """ "minute 5", "minutes 5 and 35", "minutes 5 to 10", "every 7th minute from 3 to 59"."""
    if numbers == list(span):
        return f"every {name}"
    if len(numbers) == 1:
        return f"{name} {numbers[0]}"
    step = numbers[1] - numbers[0]
    if len(numbers) > 3 and step > 1 and numbers == list(range(numbers[0], numbers[-1] + 1, step)):
        return f"every {_ordinal(step)} {name} from {numbers[0]} to {numbers[-1]}"
    return f"{name}s {listed(_runs(numbers))}"


def _runs(numbers: list[int]) -> list[str]:
    """Neighbours joined: 1, 2, 3 and 7 are "1 to 3" and "7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = []
    for run in runs:
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(number) for number in run]
    return words


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number // 10 != 1 else "th"
    return f"{number}{ending}"
