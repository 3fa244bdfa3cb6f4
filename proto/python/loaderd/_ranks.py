"""Determines this process's part of each epoch from frameworks and launchers (ranks) and from a DataLoader (workers)."""

import os
import sys
from dataclasses import dataclass
from typing import Literal, Optional, Tuple, Union

from ._checks import number
from ._errors import BadOption

Number = Union[int, Literal["auto"], None]

_LAUNCHERS = (  # variables of rank, world, and number of ranks on this machine
    ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),  # torchrun, accelerate, DeepSpeed
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""),  # srun; a batch script without srun is not a step
)


class RankWarning(UserWarning):
    """A feed was opened in one process of several without rank and world."""


@dataclass(frozen=True)
class RankInfo:
    """This process's rank and world, and its number `worker` among the `workers` of a DataLoader."""

    rank: int = 0
    world: int = 1
    source: str = ""
    worker: int = 0
    workers: int = 0  # 0 outside a DataLoader

    @property
    def divided(self) -> Tuple[int, int]:
        """Rank and world if each worker counts as a rank."""
        workers = max(1, self.workers)
        return self.rank * workers + self.worker, self.world * workers


def _whole(name: str) -> Optional[int]:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None


def local_ranks() -> int:
    """Number of ranks on this machine according to the launcher; 1 if unknown."""
    found = (_whole(variables[2]) for variables in _LAUNCHERS)
    return next((count for count in found if count is not None and count > 0), 1)


def _frameworks() -> Optional[Tuple[int, int, str]]:
    """Asks frameworks that are already imported and have joined their group."""
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        return torch.get_rank(), torch.get_world_size(), "torch.distributed"
    jax = sys.modules.get("jax")
    joined = getattr(getattr(jax, "distributed", None), "is_initialized", None)
    if jax is not None and joined is not None and joined():
        return jax.process_index(), jax.process_count(), "jax.distributed"
    return None


def _environment() -> Optional[Tuple[int, int, str]]:
    for name, of, _ in _LAUNCHERS:
        rank, world = _whole(name), _whole(of)
        if rank is not None and world is not None and rank < world:
            return rank, world, f"${name} and ${of}"
    return None


def rank_info() -> RankInfo:
    rank, world, source = _frameworks() or _environment() or (0, 1, "")
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    if info is None:
        return RankInfo(rank, world, source)
    return RankInfo(rank, world, source, info.id, info.num_workers)


NO_DATALOADER = "A feed needs no DataLoader: iterate over it in the process that trains, which gets its batches without a copy."


Part = Tuple[int, int, str]  # rank, world, and a warning for the user


def _about_workers(here: RankInfo, how: str) -> str:
    if here.worker > 0:
        return ""  # only the first worker warns
    return f"this feed is opened in each of the {here.workers} workers of a PyTorch DataLoader, {how}. {NO_DATALOADER}"


def _found(here: RankInfo) -> Part:
    rank, world = here.divided
    if here.workers > 0:
        how = 'gives each its part of the epoch, and starts again whenever the workers do; rank="auto" confirms that this is intended'
        return rank, world, _about_workers(here, how)
    if world == 1:
        return rank, world, ""
    return rank, world, (
        f"this feed gives this process, rank {rank} of {world} by {here.source}, its part of each epoch. If that is intended, set "
        'rank="auto"; rank=0, world=1 gives every process that opens such a feed the whole epoch'
    )


def _number(name: str, value: Number) -> int:
    return number(name, value, what='neither a whole number nor "auto"')


def _given(rank: Number, world: Number, here: RankInfo) -> Part:
    """Resolves rank and world if at least one is a number."""
    if "auto" in (rank, world):
        raise BadOption(f'rank: {rank!r} and world: {world!r} cannot be combined; "auto" determines both', 22)
    if world is None:
        _, world, warning = _found(here)
        return _number("rank", rank), world, warning
    world = _number("world", world)
    if rank is None and world == here.divided[1]:
        return *here.divided, ""
    if rank is None:
        raise BadOption(f'rank: set which of world={world} ranks this process is, or rank="auto" for both', 22)
    warning = ""
    if here.workers > 1 and world == here.world:
        how = f'and rank={rank}, world={world} gives all of them the same batches; rank="auto" divides them'
        warning = _about_workers(here, how)
    return _number("rank", rank), world, warning


def resolve(rank: Number, world: Number) -> Part:
    """Combines a feed's arguments with what this process knows of its rank."""
    for name, value in (("rank", rank), ("world", world)):
        if isinstance(value, str) and value != "auto":
            raise BadOption(f'{name}: {value!r} is neither a whole number nor "auto"', 22)
    here = rank_info()
    if any(value not in (None, "auto") for value in (rank, world)):
        return _given(rank, world, here)
    return (*here.divided, "") if "auto" in (rank, world) else _found(here)
