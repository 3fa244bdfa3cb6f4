"""Determines this process's part of each epoch from frameworks and launchers (ranks) and from a DataLoader (workers)."""

import sys
from dataclasses import dataclass
from typing import Literal, NamedTuple, Optional, Tuple, Union

from ._checks import number
from ._errors import BadOption
from ._launchers import environment, group, ray_train

Number = Union[int, Literal["auto"], None]


class RankWarning(UserWarning):
    """A feed was opened without rank and world in one process of several, or gives some ranks fewer batches than others."""


@dataclass(frozen=True)
class RankInfo:
    """This process's rank and world, and its number `worker` among the `workers` of a DataLoader."""

    rank: int = 0
    world: int = 1
    source: str = ""
    known: bool = True  # False: the launcher's variables do not determine the rank; a framework will, when it has started
    worker: int = 0
    workers: int = 0  # 0 outside a DataLoader

    @property
    def divided(self) -> Tuple[int, int]:
        """Rank and world if each worker counts as a rank."""
        workers = max(1, self.workers)
        return self.rank * workers + self.worker, self.world * workers


def rank_info() -> RankInfo:
    place = group() or ray_train() or environment()
    rank, world, source = place or (0, 1, "")
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    worker, workers = (0, 0) if info is None else (info.id, info.num_workers)
    return RankInfo(rank or 0, world, source, rank is not None, worker, workers)


NO_DATALOADER = "A feed needs no DataLoader: iterate over it in the process that trains, which gets its batches without a copy."


class Part(NamedTuple):
    """The part of each epoch that a feed delivers."""

    rank: int
    world: int
    warning: str = ""  # for the user
    unknown: str = ""  # the reason if `rank` is a guess; else empty


def is_given(rank: Number, world: Number) -> bool:
    """Returns True if both are numbers, so that launchers and frameworks do not matter."""
    return all(value not in (None, "auto") for value in (rank, world))


def _about_workers(here: RankInfo, how: str) -> str:
    if here.worker > 0:
        return ""  # only the first worker warns
    return f"this feed is opened in each of the {here.workers} workers of a PyTorch DataLoader, {how}. {NO_DATALOADER}"


def _about_rank(here: RankInfo) -> str:
    if here.known:
        return ""
    return (
        f"rank: {here.source} say that this process is one of {here.world}, but not which. Take the first batch after "
        "torch.distributed is initialized, or set rank= and world="
    )


def _found(here: RankInfo) -> Part:
    rank, world = here.divided
    unknown = _about_rank(here)
    if here.workers > 0:
        how = 'gives each its part of the epoch, and starts again whenever the workers do; rank="auto" confirms that this is intended'
        return Part(rank, world, _about_workers(here, how), unknown)
    if world == 1:
        return Part(rank, world)
    which = f"rank {rank} of {world}" if here.known else f"one of {world} ranks"
    return Part(rank, world, (
        f"this feed gives this process, {which} by {here.source}, its part of each epoch. If that is intended, set "
        'rank="auto"; rank=0, world=1 gives every process that opens such a feed the whole epoch'
    ), unknown)  # fmt: skip


def _number(name: str, value: Number) -> int:
    return number(name, value, what='neither a whole number nor "auto"')


def _given(rank: Number, world: Number, here: RankInfo) -> Part:
    """Resolves rank and world if at least one is a number."""
    if "auto" in (rank, world):
        raise BadOption(f'rank: {rank!r} and world: {world!r} cannot be combined; "auto" determines both', 22)
    if world is None:
        found = _found(here)
        return Part(_number("rank", rank), found.world, found.warning)
    world = _number("world", world)
    if rank is None and world == here.divided[1]:
        return Part(*here.divided, "", _about_rank(here))
    if rank is None:
        raise BadOption(f'rank: set which of world={world} ranks this process is, or rank="auto" for both', 22)
    warning = ""
    if here.workers > 1 and world == here.world:
        how = f'and rank={rank}, world={world} gives all of them the same batches; rank="auto" divides them'
        warning = _about_workers(here, how)
    return Part(_number("rank", rank), world, warning)


def resolve(rank: Number, world: Number) -> Part:
    """Combines a feed's arguments with the rank as far as it is known now."""
    for name, value in (("rank", rank), ("world", world)):
        if isinstance(value, str) and value != "auto":
            raise BadOption(f'{name}: {value!r} is neither a whole number nor "auto"', 22)
    here = rank_info()
    if any(value not in (None, "auto") for value in (rank, world)):
        return _given(rank, world, here)
    found = _found(here)
    return found._replace(warning="") if "auto" in (rank, world) else found


def uneven_packs(batches: int, world: int) -> Optional[str]:
    """Returns a warning if the batches of an epoch, with batch_tokens, cannot be divided among the ranks."""
    left = batches % world
    if left == 0:
        return None
    return (
        f"drop_last: an epoch has {batches} batches for {world} ranks, so {world - left} of them get one batch less than the others, "
        "which then wait for them in collective operations. drop_last=True gives all ranks the same number"
    )


def uneven_ranks(samples: int, batch_size: int, world: int, repeats: int) -> Optional[str]:
    """Returns a warning if the last batch of an epoch, when delivered incomplete, has samples for only some of the ranks."""
    left = samples * repeats % (batch_size * world)
    if left == 0 or left >= world:
        return None
    return (
        f"drop_last: an epoch ends with {left} samples for {world} ranks, so {world - left} of them get one batch less than the others, "
        "which then wait for them in collective operations. drop_last=True, or another batch_size, gives all ranks the same number"
    )
