"""Worker processes: functions applied to many items in order, and exceptions sent from one process to another. Standard library only."""

import multiprocessing
import pickle
import traceback
from multiprocessing.connection import wait
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple


class WorkerTraceback(Exception):
    """Holds the traceback of a worker process as text, as the cause of the exception that it sent."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class WorkerEnded(Exception):
    """A worker process ended unexpectedly; the argument is its exit status."""


def pack_error(error: BaseException) -> Tuple[bytes, str]:
    """Pickled exception and traceback, for the other process."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return pickled, text


def unpack_error(pickled: bytes, text: str) -> BaseException:
    error: BaseException = pickle.loads(pickled)
    error.__cause__ = WorkerTraceback(text)
    return error


def message_comes(connection: Any) -> bool:
    """Waits, in a worker process, for a message or the end of the connection. Returns False if the parent ends first.

    getppid() is not always the parent: with the start method forkserver it is the fork server.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    return connection in wait([connection, parent.sentinel])


def _main(connection: Any, others: List[Any], function: Callable[[Any], Any]) -> None:
    for other in others:
        other.close()
    while message_comes(connection):
        try:
            item = connection.recv()
            try:
                answer: Tuple[bool, Any] = True, pickle.dumps(function(item), 5)
            except Exception as error:
                answer = False, pack_error(error)
            connection.send(answer)
        except (EOFError, ConnectionError, KeyboardInterrupt):
            return


class _Worker:
    """A worker process, as its parent sees it.

    It is forked unless the program has chosen another start method, so functions need not be picklable.
    """

    def __init__(self, function: Callable[[Any], Any], others: List[Any]) -> None:
        context: Any = multiprocessing.get_context(multiprocessing.get_start_method(allow_none=True) or "fork")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_main, args=(theirs, [*others, self.connection], function), name="loaderd map", daemon=True)
        self._process.start()
        theirs.close()
        self.waiting = 0  # items sent whose results have not been received

    def send(self, item: Any) -> None:
        try:
            self.connection.send(item)
        except ConnectionError:
            self._ended()
        self.waiting += 1

    def receive(self) -> Any:
        self.waiting -= 1
        try:
            good, answer = self.connection.recv()
        except (EOFError, ConnectionError):
            self._ended()
        if good:
            return pickle.loads(answer)
        raise unpack_error(*answer)

    def _ended(self) -> None:
        self._process.join(1)
        raise WorkerEnded(self._process.exitcode)

    def close(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.join()


def ordered_map(function: Callable[[Any], Any], items: Iterable[Any], count: int, ahead: int) -> Iterator[Any]:
    """Yields function(item) of every item, in order, from `count` worker processes.

    Each worker holds up to `ahead` items. Only small items allow more than 1: two processes that send each other more than a pipe holds
    would wait for each other. Raises what the function raised, with WorkerTraceback as its cause, or WorkerEnded; what `items` raised
    comes after the results of the items before.
    """
    workers: List[_Worker] = []
    failure: Optional[Exception] = None
    try:
        for _ in range(count):
            workers.append(_Worker(function, [worker.connection for worker in workers]))
        sent = received = 0
        source = iter(items)
        while True:
            try:
                item = next(source)
            except StopIteration:
                break
            except Exception as error:
                failure = error
                break
            worker = workers[sent % count]
            if worker.waiting == ahead:
                yield worker.receive()
                received += 1
            worker.send(item)
            sent += 1
        for i in range(received, sent):
            yield workers[i % count].receive()
        if failure is not None:
            raise failure
    finally:
        for worker in workers:
            worker.close()
