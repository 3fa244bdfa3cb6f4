"""A worker process for transforms. Tensors and arrays are passed in both directions through shared memory."""

import io
import mmap
import multiprocessing
import os
import pickle
from multiprocessing import reduction
from typing import Any, List, Optional, Sequence, Tuple

import torch

from ._errors import FeedError
from ._processes import message_comes, pack_error, unpack_error
from ._transform import Failure, Plan, run_batch, run_chunk

_ALIGNMENT = 64
_ELEMENTS = {torch.bfloat16: torch.int16}  # dtype that NumPy lacks -> dtype of the same size that carries its bits


def _tensor(buffer: Any, dtype: Any, shape: Sequence[int], order: Sequence[int]) -> "torch.Tensor":
    """Rebuilds a tensor: `shape` as stored, `order` of its dimensions."""
    count = 1
    for extent in shape:
        count *= extent
    if count == 0:
        stored = torch.empty(shape, dtype=dtype)
    else:
        carrier = _ELEMENTS.get(dtype, dtype)
        stored = torch.frombuffer(buffer, dtype=carrier, count=count).view(dtype).reshape(shape)
    return stored.permute(*order) if len(order) > 1 else stored


class _Pickler(pickle.Pickler):
    """Pickles dense CPU tensors with their contents out of band, as NumPy arrays are."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or value.device.type != "cpu" or value.layout != torch.strided or value.requires_grad:
            return NotImplemented
        strides: Tuple[int, ...] = value.stride()
        by_stride = sorted(range(value.dim()), key=strides.__getitem__, reverse=True)
        stored = value.permute(*by_stride) if value.dim() > 1 else value
        if not stored.is_contiguous():
            stored, by_stride = value.contiguous(), list(range(value.dim()))
        order = sorted(range(value.dim()), key=lambda i: by_stride[i])
        carrier = stored.view(_ELEMENTS.get(value.dtype, value.dtype))
        try:
            array = carrier.reshape(-1).numpy()
        except TypeError:
            return NotImplemented  # an element that NumPy does not know
        return _tensor, (pickle.PickleBuffer(array), value.dtype, tuple(stored.shape), tuple(order))


class _Arena:
    """Shared memory for the messages of one direction. The sender replaces it when a message needs more."""

    def __init__(self) -> None:
        self.memory: Optional[mmap.mmap] = None
        self.size = 0

    def grow(self, size: int) -> int:
        """Grows the memory to `size` bytes and returns its descriptor for the other process; the caller closes it."""
        self.size = max(size + size // 4, 1 << 20)
        descriptor = os.memfd_create("loaderd transform", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, self.size)
        self.map(descriptor)
        return descriptor

    def map(self, descriptor: int) -> None:
        self.size = os.fstat(descriptor).st_size
        self.memory = mmap.mmap(descriptor, self.size)  # existing arrays keep the old memory mapped


def _send(connection: Any, arena: _Arena, value: Any, peer: int) -> None:
    buffers: List[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, 5, buffer_callback=buffers.append).dump(value)
    places, end = [], 0
    raws = [buffer.raw() for buffer in buffers]
    for raw in raws:
        places.append((end, raw.nbytes))
        end += -(-raw.nbytes // _ALIGNMENT) * _ALIGNMENT
    grown = end > arena.size
    descriptor = arena.grow(end) if grown else -1
    memory = arena.memory
    for (at, size), raw in zip(places, raws):
        assert memory is not None
        memory[at : at + size] = raw
    connection.send((grown, places, len(stream.getbuffer())))
    if grown:
        reduction.send_handle(connection, descriptor, peer)
        os.close(descriptor)
    connection.send_bytes(stream.getbuffer())


def _receive(connection: Any, arena: _Arena) -> Any:
    """Receives a message. Its arrays are in the arena, valid until the next message."""
    grown, places, _ = connection.recv()
    if grown:
        descriptor = reduction.recv_handle(connection)
        arena.map(descriptor)
        os.close(descriptor)
    view = memoryview(arena.memory) if arena.memory is not None else memoryview(b"")
    return pickle.loads(connection.recv_bytes(), buffers=[view[at : at + size] for at, size in places])


def _copied(value: Any) -> Any:
    """Copies all tensors and arrays out of the arena."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if hasattr(value, "__array_interface__") and hasattr(value, "copy"):
        return value.copy()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_copied(item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(item) for item in value)
    return value


def _portable(failure: Optional[Failure]) -> Optional[Tuple[int, bytes, str]]:
    """Position, pickled exception and traceback, for the other process."""
    if failure is None:
        return None
    return (failure.position, *pack_error(failure.error))


def _main(connection: Any, plan: Plan, with_rng: bool, batch_with_rng: bool, parent: int) -> None:
    torch.set_num_threads(1)
    incoming, outgoing = _Arena(), _Arena()
    while message_comes(connection):
        try:
            kind, value, seeds = _receive(connection, incoming)
            value = _copied(value)  # the transform may keep references to its input
            if kind == "chunk":
                result, failure = run_chunk(value, seeds, plan, with_rng, globally=True)
            else:
                result, failure = run_batch(value, seeds, plan, batch_with_rng, globally=True)
            _send(connection, outgoing, (result, _portable(failure)), parent)
        except (EOFError, ConnectionError, KeyboardInterrupt):
            return


class Worker:
    """A worker process, as its parent sees it. One call at a time."""

    def __init__(self, plan: Plan, with_rng: bool, batch_with_rng: bool, number: int, context: Any) -> None:
        if not hasattr(context, "Process"):
            context = multiprocessing.get_context(context)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_main, args=(theirs, plan, with_rng, batch_with_rng, os.getpid()), name=f"loaderd transform {number}", daemon=True
        )
        self._process.start()
        theirs.close()
        self._incoming, self._outgoing = _Arena(), _Arena()

    def call(self, kind: str, value: Any, seeds: Any) -> Tuple[Any, Optional[Failure]]:
        try:
            _send(self._connection, self._outgoing, (kind, value, seeds), self._process.pid or 0)
            result, failed = _receive(self._connection, self._incoming)
        except (EOFError, ConnectionError):
            self._process.join(1)
            raise FeedError(
                f"a worker process of transform ended (exit status {self._process.exitcode}); a crash or kill of it stops the loop"
            ) from None
        result = _copied(result)
        if failed is None:
            return result, None
        position, pickled, text = failed
        return result, Failure(position, unpack_error(pickled, text))

    def close(self) -> None:
        self._connection.close()
        self._process.terminate()
