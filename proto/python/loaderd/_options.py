"""The options of a feed in the form that _feed.Stream takes."""

import warnings
from typing import Any, Optional, Tuple, TypedDict, Union

from ._checks import choice, flag
from ._errors import BadOption

LAST = {"drop": 0, "short": 1}
FOREVER = (1 << 32) - 1  # for reconnect_timeout_ms
BAD = {"substitute": 0, "skip": 1, "fail": 2}


class Options(TypedDict):
    """All options but the position."""

    dataset: Optional[bytes]
    pipeline: str
    name: str
    batch_size: int
    shuffle: bool
    seed: int
    epoch_end: int
    rank: int
    world: int
    last: int
    bad: int
    slots: int
    fields: Tuple[str, ...]
    field_bytes: int
    writable: bool
    reconnect: bool
    reconnect_timeout_ms: int
    cut_values: bool
    repeats: int
    wanted: bool
    values: Tuple[str, ...]
    order: Optional[Tuple[Any, ...]]


def last_of(drop_last: Optional[bool], last: Optional[str], stacklevel: int) -> int:
    """Returns what becomes of an incomplete last batch; `last` is the older name of `drop_last`."""
    if last is None:
        return LAST["drop" if drop_last is not None and flag("drop_last", drop_last) else "short"]
    found = choice("last", last, LAST)
    if drop_last is not None:
        raise BadOption(f"drop_last: {drop_last!r} and last: {last!r} cannot be combined; drop_last alone is enough", 22)
    warnings.warn(
        f'last={last!r} is deprecated and will be removed in the next version; use drop_last={last == "drop"}',
        DeprecationWarning, stacklevel=stacklevel + 1,
    )  # fmt: skip
    return found


def reconnect_timeout_ms(reconnect: Union[bool, float, None]) -> int:
    if isinstance(reconnect, bool):
        return 0
    if reconnect is None:
        return FOREVER
    if isinstance(reconnect, str):
        raise TypeError(f"reconnect: {reconnect!r} is neither True, False, None nor a number of seconds")
    if not 0 < reconnect <= 1 << 22:
        raise BadOption(f"reconnect: {reconnect!r} is neither True, False, None nor a number of seconds above 0", 22)
    return max(1, round(reconnect * 1000))
