"""The options of a feed in the form that _feed.Stream takes."""

from typing import Tuple, TypedDict, Union

from ._errors import BadOption

LAST = {"drop": 0, "short": 1}
BAD = {"substitute": 0, "skip": 1, "fail": 2}


class Options(TypedDict):
    """All options but the position."""

    dataset: bytes
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


def reconnect_timeout_ms(reconnect: Union[bool, float, None]) -> int:
    if isinstance(reconnect, bool):
        return 0
    if reconnect is None:
        return (1 << 32) - 1
    if isinstance(reconnect, str):
        raise TypeError(f"reconnect: {reconnect!r} is neither True, False, None nor a number of seconds")
    if not 0 < reconnect <= 1 << 22:
        raise BadOption(f"reconnect: {reconnect!r} is neither True, False, None nor a number of seconds above 0", 22)
    return max(1, round(reconnect * 1000))
