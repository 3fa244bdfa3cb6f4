"""Rank of this process, number of ranks, and number of ranks on this machine, according to launchers and frameworks."""

import os
import re
import sys
import warnings
from typing import Any, NamedTuple, Optional, Tuple


class Launcher(NamedTuple):
    """The environment variables that a launcher sets in each process that it starts."""

    name: str
    rank: str
    world: str
    ranks_here: Tuple[str, ...] = ()  # number of ranks on this machine
    node: str = ""  # if set, `rank` is the rank within the machine with this number


# The first row of which all variables are set decides. Launchers that start one process per machine and divide it further, such as
# torchrun or Lightning under srun, have to precede those that they run under.
LAUNCHERS = (
    Launcher("torchrun, Accelerate and Ray Train", "RANK", "WORLD_SIZE", ("LOCAL_WORLD_SIZE",)),
    Launcher("DeepSpeed", "RANK", "WORLD_SIZE", ("LOCAL_SIZE",)),
    Launcher("Lightning", "LOCAL_RANK", "WORLD_SIZE", ("LOCAL_WORLD_SIZE",), node="NODE_RANK"),
    Launcher("JAX", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    Launcher("Horovod", "HOROVOD_RANK", "HOROVOD_SIZE", ("HOROVOD_LOCAL_SIZE",)),
    Launcher("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("OMPI_COMM_WORLD_LOCAL_SIZE",)),
    Launcher("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", ("MV2_COMM_WORLD_LOCAL_SIZE",)),
    Launcher("MPICH and Intel MPI", "PMI_RANK", "PMI_SIZE", ("MPI_LOCALNRANKS",)),
    Launcher("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", ("JSM_NAMESPACE_LOCAL_SIZE",)),
    Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_STEP_TASKS_PER_NODE",)),  # a batch script without srun is not a step
)


class Place(NamedTuple):
    """A process's rank among `world`, and the source of these; rank is None if it is not known yet."""

    rank: Optional[int]
    world: int
    source: str


def _number(name: str) -> Optional[int]:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None


def _number_here(name: str) -> Optional[int]:
    """A number, or this machine's number in Slurm's list for all machines: "4(x2),3" is 4 on two machines and 3 on the next."""
    node = _number("SLURM_NODEID")
    if node is None:
        return _number(name)
    for count, machines in re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get(name, "")):
        if node < int(machines or 1):
            return int(count)
        node -= int(machines or 1)
    return _number(name)


def _ranks_here(launcher: Launcher) -> Optional[int]:
    found = (_number_here(name) for name in launcher.ranks_here)
    return next((count for count in found if count is not None and count > 0), None)


def local_ranks() -> int:
    """Number of ranks on this machine according to the launcher; 1 if unknown."""
    return next((count for count in map(_ranks_here, LAUNCHERS) if count is not None), 1)


def _started_by(launcher: Launcher) -> Optional[Place]:
    rank, world = _number(launcher.rank), _number(launcher.world)
    if rank is None or world is None:
        return None
    source = f"${launcher.rank} and ${launcher.world}"
    if launcher.node:
        node, here = _number(launcher.node), _ranks_here(launcher)
        if node is None:
            return None
        source = f"${launcher.node}, {source}"
        if node > 0 and here is None:  # the variables say neither how many machines there are nor how many ranks each has
            return Place(None, world, source)
        rank += node * (here or 0)
    return Place(rank, world, source) if rank < world else None


def environment() -> Optional[Place]:
    """The place according to the launcher's environment variables; None without a launcher."""
    return next((place for place in map(_started_by, LAUNCHERS) if place is not None), None)


def group() -> Optional[Place]:
    """The place in the group that this process has joined with PyTorch or JAX; None before. Takes about a microsecond."""
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        return Place(torch.get_rank(), torch.get_world_size(), "torch.distributed")
    jax = sys.modules.get("jax")
    joined = getattr(getattr(jax, "distributed", None), "is_initialized", None)
    if jax is not None and joined is not None and joined():
        return Place(jax.process_index(), jax.process_count(), "jax.distributed")
    return None


def ray_train() -> Optional[Place]:
    """The place among Ray Train's workers. Its trainers without PyTorch set no variables."""
    train: Any = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # outside a worker it warns, or raises
            context = train.get_context()
            rank, world = context.get_world_rank(), context.get_world_size()
    except Exception:
        return None
    return Place(rank, world, "ray.train") if isinstance(rank, int) and isinstance(world, int) and world > 1 else None
