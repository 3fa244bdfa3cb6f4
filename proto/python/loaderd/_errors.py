"""Exceptions. Each is a FeedError with a sentence for a person and the errno in .code."""

import errno
from typing import Dict, Tuple, Type

from . import _feed


class FeedError(Exception):
    """Something went wrong between this program and loaderd."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code
        if isinstance(self, OSError):
            setattr(self, "errno", code)  # is the base class's, which not all have
            setattr(self, "strerror", text)

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> "Tuple[Type[FeedError], Tuple[str, int]]":
        return type(self), (str(self), self.code)


class NoDaemon(FeedError, ConnectionError):
    """No daemon listens on the socket, or a private one did not start."""


class DaemonGone(FeedError, ConnectionError):
    """The daemon went away, and the feed could not be opened again, or was not to be (reconnect=False)."""


class BadOption(FeedError, ValueError):
    """An option cannot be; the text names it."""


class BadPipeline(BadOption):
    """The pipeline has a mistake; the text shows where."""


class DatasetReplaced(FeedError):
    """Another dataset lies under the path since the feed was opened."""


class NoDataset(FeedError, FileNotFoundError):
    """The daemon finds no such dataset."""


class NotPermitted(FeedError, PermissionError):
    """This user may not read the dataset, use that daemon, or have what the daemon's configuration forbids."""


class LimitExceeded(FeedError):
    """The daemon's configuration does not allow that much."""


class FeedTimeout(FeedError, TimeoutError):
    """No batch came within the time given."""


class FeedFailed(FeedError):
    """The daemon ended the feed, for instance at a damaged sample under bad="fail"."""


class NoFreeBatch(FeedError):
    """The program holds every batch that the feed has room for."""


class ProtocolError(FeedError):
    """Daemon and library do not understand each other."""


class WrongProcess(FeedError, RuntimeError):
    """A Feed was used in a process forked from the one that opened it."""


_BY_CODE: Dict[int, Type[FeedError]] = {
    errno.ECONNRESET: DaemonGone,
    errno.ENOTCONN: DaemonGone,
    errno.ECONNREFUSED: NoDaemon,
    errno.ECHILD: WrongProcess,
    errno.EINVAL: BadOption,
    errno.EACCES: NotPermitted,
    errno.EPERM: NotPermitted,
    errno.ENAMETOOLONG: BadOption,
    errno.EMSGSIZE: BadOption,
    errno.ENOENT: NoDaemon,
    errno.EDQUOT: LimitExceeded,
    errno.ETIMEDOUT: FeedTimeout,
    errno.EBADMSG: FeedFailed,
    errno.ENOBUFS: NoFreeBatch,
    errno.EPROTO: ProtocolError,
    errno.ESTALE: DatasetReplaced,
}


def translated(error: "_feed.Error", more: str = "") -> FeedError:
    """The exception for what libfeed reported."""
    code, text = error.args
    kind = _BY_CODE.get(code, FeedError)
    if kind is BadOption and text.startswith("pipeline"):
        kind = BadPipeline
    if code == errno.ENOENT and text.startswith("dataset"):
        kind = NoDataset
    return kind(text + more, code)
