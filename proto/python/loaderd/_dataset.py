"""Facts about a dataset, from a daemon."""

import os
from dataclasses import dataclass
from typing import Mapping, NamedTuple, Optional, Sequence, Tuple, Union
from uuid import UUID

from . import _feed
from ._daemon import Settings, choose, find_fetcher
from ._errors import translated

_FIELD_TYPES = ("unknown", "int64", "float64", "bytes", "json", "text")


class Field(NamedTuple):
    """An extra field of a dataset that a feed can deliver."""

    type: str  # "int64", "float64", "text", "json", "bytes"; "unknown" if the daemon is too old to report it
    longest: Optional[int]  # bytes of its longest value; None for numbers, and if the file does not record it


@dataclass(frozen=True)
class Dataset:
    """Facts about a dataset. mean and std are R, G, B in 0..255, None if not recorded."""

    samples: int
    classes: Sequence[str]
    mean: Optional[Tuple[float, float, float]]
    std: Optional[Tuple[float, float, float]]
    metadata: str
    uuid: Optional[str]  # identifies the content; None if the daemon is too old to report it
    fields: Mapping[str, Field]
    blocks: Tuple[int, int]  # block_samples and group_blocks of Feed(order="blocks") unless given; zeros if a file is missing


def dataset(
    path: Union[str, "os.PathLike[str]"],
    *,
    socket: Optional[str] = None,
    daemon: str = "auto",
    threads: int = 0,
    settings: Optional[Settings] = None,
) -> Dataset:
    """Returns facts about a dataset from a daemon, which is chosen as for Feed. The path may be an address, as for Feed."""
    find_fetcher([os.fsdecode(path)])
    address, _ = choose(socket, daemon, threads, settings)
    try:
        samples, classes, mean, std, metadata, uuid, fields, blocks = _feed.dataset(address, os.fsencode(path))
    except _feed.Error as error:
        raise translated(error) from None
    described = {name: Field(_FIELD_TYPES[kind], longest if kind >= 3 else None) for name, kind, longest in fields}
    return Dataset(samples, classes, mean, std, metadata, uuid_text(uuid), described, blocks)


def uuid_text(uuid: bytes) -> Optional[str]:
    return str(UUID(bytes=uuid)) if any(uuid) else None
