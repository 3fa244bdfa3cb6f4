from typing import Any, Optional, TypedDict

version: str

class Error(Exception): ...

class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def address(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(
        self,
        *,
        stream: Any = ...,
        max_version: Optional[tuple[int, int]] = ...,
        dl_device: Optional[tuple[int, int]] = ...,
        copy: Optional[bool] = ...,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Slot:
    def images(self) -> Array: ...
    def shared_images(self) -> Array: ...
    def labels(self) -> Array: ...
    def samples(self) -> Array: ...
    def flags(self) -> Array: ...
    def field(self, index: int, /) -> Array | tuple[list[bytes] | list[str], int]: ...
    def facts(self) -> tuple[int, int, int, int, int, int, int, int, int, int, bool, int, int]: ...

class Info(TypedDict):
    feed_id: int
    samples: int
    batches_per_epoch: int
    classes: int
    slots: int
    batch_size: int
    address: int
    bytes: int
    reconnects: int
    uuid: bytes

class Stream:
    def __init__(
        self,
        socket: Optional[str],
        dataset: bytes,
        pipeline: str,
        name: str,
        batch_size: int,
        shuffle: bool,
        seed: int,
        epoch: int,
        batch: int,
        epoch_end: int,
        rank: int,
        world: int,
        last: int,
        bad: int,
        slots: int,
        fields: tuple[str, ...],
        field_bytes: int,
        timeout_ms: int,
        writable: bool,
        reconnect: bool,
        reconnect_timeout_ms: int,
        cut_values: bool,
        repeats: int,
    ) -> None: ...
    def next(self, timeout_ms: int, /) -> Optional[Slot]: ...
    def close(self) -> None: ...
    def position(self) -> tuple[int, int]: ...
    def info(self) -> Info: ...
    def keep(self, address: int, /) -> None: ...
    def drop(self, address: int, /) -> None: ...
    def reconnect_text(self) -> str: ...
    def fileno(self) -> int: ...

class Daemon:
    def __init__(self, binary: Optional[str], threads: int, settings: tuple[str, ...]) -> None: ...
    def stop(self) -> None: ...
    def restart(self) -> None: ...
    @property
    def socket(self) -> Optional[str]: ...
    @property
    def pid(self) -> Optional[int]: ...
    @property
    def alive(self) -> bool: ...
    @property
    def log(self) -> str: ...

def dataset(
    socket: Optional[str], path: bytes, /
) -> tuple[
    int,
    list[str],
    Optional[tuple[float, float, float]],
    Optional[tuple[float, float, float]],
    str,
    bytes,
    list[tuple[str, int, Optional[int]]],
]: ...
def default_socket() -> str: ...
