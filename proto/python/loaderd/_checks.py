"""Checks of user arguments: TypeError for a wrong type, BadOption (a ValueError) for an invalid value."""

import os
import sys
from math import isnan
from operator import index
from typing import Any, Iterable, Mapping, NoReturn, Union

from ._errors import BadOption

MILLISECONDS_MAX = (1 << 31) - 1

# Names that other loaders use for options, with their equivalents here.
_ELSEWHERE = {
    "num_workers": "threads=N sets the threads of a private daemon, all CPUs by default",
    "transform": 'pipeline="random_resized_crop(224) hflip" sets the transforms, see loaderd(1)',
    "transforms": 'pipeline="random_resized_crop(224) hflip" sets the transforms, see loaderd(1)',
    "target_transform": "labels come as packed; change them in the batch",
    "collate_fn": "batches are already collated: batch.images, batch.labels, batch.torch()",
    "pin_memory": "feed.pin() registers the feed's memory with CUDA",
    "prefetch_factor": "slots=N sets the number of batches in shared memory",
    "persistent_workers": "the daemon's threads always persist",
    "sampler": "shuffle=True with seed, and rank with world, determine the samples and their order; wanted=True takes them from feed.want()",
    "batch_sampler": "shuffle=True with seed, and rank with world, determine the samples and their order; wanted=True takes them from feed.want()",
    "generator": "seed=N determines order and augmentation",
    "worker_init_fn": "seed=N determines order and augmentation",
    "root": "dataset, the first argument, is a .pimg file; packimg convert makes it from a folder",
    "num_replicas": "world=N is the number of processes that share an epoch",
    "device": 'batch.to("cuda") copies a batch',
}


def level_of_caller() -> int:
    """Returns the stacklevel with which the calling function's warnings.warn() names the first caller outside this package."""
    folder = os.path.dirname(__file__)
    level = 1
    while os.path.dirname(sys._getframe(level).f_code.co_filename) == folder and sys._getframe(level).f_back:
        level += 1
    return level


def refuse_unknown(unknown: Iterable[str], known: Iterable[str]) -> NoReturn:
    """Raises TypeError for an unknown option, with a hint if the intended option can be guessed."""
    from difflib import get_close_matches

    name = next(iter(unknown))
    near = get_close_matches(name, [*known], 1)
    hint = _ELSEWHERE.get(name) or (f"did you mean {near[0]}?" if near else "help(loaderd.Feed) lists the options")
    raise TypeError(f"Feed has no option {name}: {hint}")


def number(name: str, value: Any, bits: int = 32, what: str = "not a whole number") -> int:
    try:
        whole = index(value)
    except TypeError:
        raise TypeError(f"{name}: {value!r} is {what}") from None
    if not 0 <= whole < 1 << bits:
        raise BadOption(f"{name}: {whole} is not in 0 .. 2^{bits} - 1", 22)
    return whole


def choice(name: str, value: str, choices: Mapping[str, int]) -> int:
    if value not in choices:
        raise BadOption(f"{name}: {value!r} is not one of {', '.join(choices)}", 22)
    return choices[value]


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: {value!r} is not a text")
    if "\0" in value:
        raise BadOption(f"{name}: {value!r} contains a zero byte", 22)
    return value


def flag(name: str, value: Any) -> bool:
    """Accepts True, False, 0 and 1; not "no", which would be true."""
    if value not in (False, True):
        raise TypeError(f"{name}: {value!r} is neither True nor False")
    return bool(value)


def milliseconds(name: str, value: Union[float, None]) -> int:
    """Converts seconds to milliseconds; None, which means no limit, becomes -1."""
    if value is None:
        return -1
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = None
    if seconds is None or isinstance(value, str):
        raise TypeError(f"{name}: {value!r} is neither a number of seconds nor None")
    if isnan(seconds) or seconds < 0:
        raise BadOption(f"{name}: {value!r} is not a number of seconds of at least 0", 22)
    return round(min(seconds * 1000, MILLISECONDS_MAX))
