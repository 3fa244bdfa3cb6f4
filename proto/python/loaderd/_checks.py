"""What users give, looked at before it is used: TypeError for what is of another kind, BadOption (a ValueError) for what cannot be."""

from math import isnan
from operator import index
from typing import Any, Mapping, Union

from ._errors import BadOption

MILLISECONDS_MAX = (1 << 31) - 1


def number(name: str, value: Any, bits: int = 32, what: str = "no whole number") -> int:
    try:
        whole = index(value)
    except TypeError:
        raise TypeError(f"{name}: {value!r} is {what}") from None
    if not 0 <= whole < 1 << bits:
        raise BadOption(f"{name}: {whole} is not in 0 .. 2^{bits} - 1", 22)
    return whole


def choice(name: str, value: str, choices: Mapping[str, int]) -> int:
    if value not in choices:
        raise BadOption(f"{name}: {value!r} is none of {', '.join(choices)}", 22)
    return choices[value]


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: {value!r} is no text")
    if "\0" in value:
        raise BadOption(f"{name}: {value!r} has a zero byte in it", 22)
    return value


def flag(name: str, value: Any) -> bool:
    """0 and 1 as well; not "no", which would be true."""
    if value not in (False, True):
        raise TypeError(f"{name}: {value!r} is neither True nor False")
    return bool(value)


def milliseconds(name: str, value: Union[float, None]) -> int:
    """Of a number of seconds; -1 for None, which is for ever."""
    if value is None:
        return -1
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = None
    if seconds is None or isinstance(value, str):
        raise TypeError(f"{name}: {value!r} is neither a number of seconds nor None")
    if isnan(seconds) or seconds < 0:
        raise BadOption(f"{name}: {value!r} is no number of seconds from 0 on", 22)
    return round(min(seconds * 1000, MILLISECONDS_MAX))
