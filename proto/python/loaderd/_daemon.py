"""Which daemon a Feed uses, and private ones."""

import atexit
import os
import socket as sockets
import stat
import sys
import threading
from typing import Optional

from . import _feed
from ._errors import NoDaemon, translated

SYSTEM_SOCKET = "/run/loaderd/loaderd.sock"


def _binary() -> Optional[str]:
    """The daemon's program: $LOADERD, the one in this package, the one of this environment; else libfeed's rule, which ends in PATH."""
    if os.environ.get("LOADERD"):
        return os.environ["LOADERD"]
    for path in (
        os.path.join(os.path.dirname(__file__), "bin", "loaderd"),
        os.path.join(sys.prefix, "bin", "loaderd"),
    ):
        if os.access(path, os.X_OK):
            return path
    return None


def _default_threads() -> int:
    """With several ranks on this machine and a daemon each, a fair part of the CPUs; else the daemon's own choice."""
    try:
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    except ValueError:
        local = 1
    return max(1, len(os.sched_getaffinity(0)) // local) if local > 1 else 0


class Daemon:
    """A private daemon: only this user can reach it, and it ends with this process.

    Any process of this user may open feeds at its `socket`; for ranks of one training on one machine, start one
    and put its socket into $LOADERD_SOCKET.
    """

    def __init__(self, threads: int = 0, binary: Optional[str] = None) -> None:
        try:
            self._daemon = _feed.Daemon(binary or _binary(), threads or _default_threads())
        except _feed.Error as error:
            failure = translated(error)
            raise NoDaemon(str(failure), failure.code) from None
        self._socket = self._daemon.socket
        self._pid = self._daemon.pid

    @property
    def socket(self) -> str:
        """Address for Feed(socket=...) and $LOADERD_SOCKET."""
        return self._socket

    @property
    def pid(self) -> int:
        """Another one after a restart; of one that was stopped the last."""
        self._pid = self._daemon.pid or self._pid
        return self._pid

    @property
    def alive(self) -> bool:
        return self._daemon.alive

    @property
    def log(self) -> str:
        """The end of what it wrote to standard error."""
        return self._daemon.log

    def restart(self) -> None:
        """Starts it again, on the same socket, if it has ended. Feeds of this process do so by themselves."""
        try:
            self._daemon.restart()
        except _feed.Error as error:
            failure = translated(error)
            raise NoDaemon(str(failure), failure.code) from None

    def stop(self) -> None:
        """Stops it and waits. Feeds that are open at it see DaemonGone."""
        self._daemon.stop()

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<loaderd.Daemon {self._socket}, pid {self.pid}{'' if self.alive else ', ended'}>"


_lock = threading.Lock()
_shared: Optional[Daemon] = None
_shared_owner = 0


def _stop_shared() -> None:
    if _shared is not None and _shared_owner == os.getpid():
        _shared.stop()


def shared_daemon(threads: int) -> Daemon:
    """This process's private daemon, started when first needed and shared by its feeds; a new one after a fork."""
    global _shared, _shared_owner
    with _lock:
        if _shared is None or _shared_owner != os.getpid():
            _shared = Daemon(threads)
            if _shared_owner == 0:
                atexit.register(_stop_shared)
            _shared_owner = os.getpid()
        elif not _shared.alive:
            _shared.restart()
        return _shared


def _service_socket() -> str:
    """The user's own service where there is one, else the system's: libfeed's rule, feed(3)."""
    own = os.environ.get("XDG_RUNTIME_DIR", "") + "/loaderd.sock"
    try:
        status = os.stat(own)
    except OSError:
        return SYSTEM_SOCKET
    return own if stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid() else SYSTEM_SOCKET


def _daemon_answers(socket: str) -> bool:
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        probe.settimeout(5)
        try:
            probe.connect(socket)
        except OSError:
            return False
        return True


def choose(socket: Optional[str], daemon: str, threads: int) -> "tuple[Optional[str], Optional[Daemon]]":
    """The socket to use and the private daemon behind it, if it is one. The rule is in Feed's documentation."""
    if daemon not in ("auto", "system", "private"):
        raise ValueError(f'daemon: {daemon!r} is none of "auto", "system", "private"')
    if daemon != "private":
        if socket or os.environ.get("LOADERD_SOCKET"):
            return socket or os.environ["LOADERD_SOCKET"], None
        service = _service_socket()
        if daemon == "system" or _daemon_answers(service):
            return service, None
    elif socket:
        raise ValueError('socket: a private daemon has one of its own; leave it out, or daemon="private"')
    private = shared_daemon(threads)
    return private.socket, private
