#!/usr/bin/env python3
"""Ranks over TCP that meet strangers, taken ports, ranks that do not come, and ranks that go: comm_tcp.py PROGRAM (comm_loop.c)"""

import hashlib
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from launch_ranks import free_port

PROGRAM = sys.argv.pop()
TIMEOUT = 120  # seconds; exceeded only by a program that hangs
LOST_SECONDS = 10  # in which ranks notice that another is gone
KEY = secrets.token_hex()
MAGIC = b"loaderd ranks 1\0"
HELLO_BYTES = 104
NO_MORE, LOST = 1, 75  # statuses


class Ranks(unittest.TestCase):
    def setUp(self):
        self.port = free_port()
        self.processes = []
        self.addCleanup(self.kill)

    def kill(self):
        while self.processes:
            process = self.processes.pop()
            process.kill()
            process.wait()
            process.stdout.close()

    def start(self, rank, world=3, *arguments, **more):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOADERD_RANKS_KEY": KEY,
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), "LOADERD_RANKS_TIMEOUT": "60", **more}  # fmt: skip
        process = subprocess.Popen([PROGRAM, *arguments], env=environment, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def start_all(self, world=3, *arguments, **more):
        return [self.start(rank, world, *arguments, **more) for rank in range(world)]

    def sums(self, ranks):
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "summing\n")

    def expect(self, rank, status, *words):
        said = rank.communicate(timeout=TIMEOUT)[0]
        self.assertEqual(rank.returncode, status, said)
        for word in words:
            self.assertIn(word, said)
        return said

    def rank0_port(self, port):
        """Waits until rank 0 listens, and returns a connection to it."""
        for _ in range(TIMEOUT * 100):
            try:
                return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
            except ConnectionRefusedError:
                time.sleep(0.01)
        self.fail("rank 0 does not listen")

    def test_lost(self):
        """Any rank is killed: all others end in time, with its number and process."""
        for lost in range(3):
            with self.subTest(lost=lost):
                ranks = self.start_all()
                self.sums(ranks)
                ranks[lost].kill()
                begin = time.monotonic()
                for other in set(range(3)) - {lost}:
                    self.expect(ranks[other], LOST, f"rank {lost} of 3 (process {ranks[lost].pid} on {socket.gethostname()}) went away")
                self.assertLess(time.monotonic() - begin, LOST_SECONDS)
                self.port = free_port()

    def test_aborted(self):
        ranks = self.start_all(3, "the disk is full")
        for rank in (0, 2):
            self.expect(ranks[rank], NO_MORE, f"rank 1 of 3 (process {ranks[1].pid} on {socket.gethostname()}) failed: the disk is full\n")
        self.expect(ranks[1], NO_MORE)

    def test_missing(self):
        ranks = [self.start(rank, 4, LOADERD_RANKS_TIMEOUT="1") for rank in (0, 2)]
        for rank in ranks:
            self.expect(rank, LOST, "ranks 1 and 3 of 4 did not come to rank 0 on ", f"port {self.port}, within 1 seconds (LOADERD_RANKS_TIMEOUT)")

    def test_no_rank_0(self):
        ranks = [self.start(1, 2, LOADERD_RANKS_TIMEOUT="1", MASTER_ADDR=address) for address in ("127.0.0.1", "no-such-host.invalid")]
        self.expect(ranks[0], LOST, f"rank 1 of 2 did not find rank 0 at 127.0.0.1, ports {self.port} to ")
        self.expect(ranks[1], LOST, "MASTER_ADDR=no-such-host.invalid: ")

    def test_disagreements(self):
        first = self.start(0)
        other = self.start(1, 4)
        for rank in (first, other):
            self.expect(rank, NO_MORE, f"rank 1 (process {other.pid} on {socket.gethostname()}) was started as one of 4 ranks, but rank 0 as one of 3")
        self.port = free_port()
        ranks = [self.start(rank) for rank in (0, 1, 1)]
        for rank in ranks:
            self.expect(rank, NO_MORE, "two processes are rank 1: process ", str(ranks[1].pid), str(ranks[2].pid))

    def test_other_key(self):
        ranks = [self.start(0, 2, LOADERD_RANKS_TIMEOUT="2"), self.start(1, 2, LOADERD_RANKS_KEY=secrets.token_hex(), LOADERD_RANKS_TIMEOUT="1")]
        self.expect(ranks[1], LOST, "a rank 0 with another key", "LOADERD_RANKS_KEY")
        self.expect(ranks[0], LOST, "rank 1 of 2 did not come")

    def test_key_of_home(self):
        """Without a key in the environment, ranks make one and use it."""
        with tempfile.TemporaryDirectory() as home:
            ranks = self.start_all(3, LOADERD_RANKS_KEY="", HOME=home, XDG_STATE_HOME="")
            self.sums(ranks)
            path = f"{home}/.local/state/loaderd/ranks.key"
            self.assertEqual((os.stat(path).st_mode & 0o777, os.stat(path).st_size), (0o600, 32))
            self.kill()
            os.chmod(path, 0o644)
            self.expect(self.start(0, LOADERD_RANKS_KEY="", HOME=home, XDG_STATE_HOME=""), NO_MORE, path, "others may read it", "remove it")

    def test_taken_port(self):
        """Another program listens on MASTER_PORT, as torchrun's agent does, accepts and says nothing."""
        with socket.create_server(("127.0.0.1", self.port)) as taken:
            ranks = self.start_all()
            self.sums(ranks)
            taken.settimeout(0)
            self.kill()
        with socket.create_server(("127.0.0.1", self.port), backlog=128) as taken:
            # the same if the launcher says so: then nobody connects to it
            taken.settimeout(0)
            ranks = self.start_all(TORCHELASTIC_RUN_ID="none", TORCHELASTIC_USE_AGENT_STORE="True")
            self.sums(ranks)
            self.assertRaises(BlockingIOError, taken.accept)

    def test_runs_apart(self):
        """Two runs with one MASTER_PORT and one key: each rank finds its own rank 0."""
        first = {}
        for i, name in enumerate(("one", "other")):
            first[name] = self.start(0, TORCHELASTIC_RUN_ID=name)
            self.rank0_port(self.port + i).close()
        for name in ("other", "one"):
            self.sums([first[name], *(self.start(rank, TORCHELASTIC_RUN_ID=name) for rank in (1, 2))])

    def test_ipv6(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            self.skipTest("no IPv6")
        self.sums(self.start_all(MASTER_ADDR="::1"))

    def test_machines(self):
        """What launchers say about ranks of a machine has to fit."""
        self.expect(self.start(1, 4, LOCAL_RANK="2", LOCAL_WORLD_SIZE="4"), NO_MORE, "LOCAL_RANK=2 and LOCAL_WORLD_SIZE=4 do not fit RANK=1")
        self.expect(self.start(4, 4), NO_MORE, "RANK=4 has to be below WORLD_SIZE=4")
        self.expect(self.start(1, 4, MASTER_PORT="http"), NO_MORE, "MASTER_PORT=http: expected a number from 1 to 65535")
        ranks = [self.start(rank, 2, LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=size) for rank, size in ((0, "1"), (1, "2"))]
        for rank in ranks:
            self.expect(rank, NO_MORE, "rank 1 has LOCAL_RANK=1 and LOCAL_WORLD_SIZE=2, which do not fit")

    def test_strangers(self):
        """A flood of connections that send nothing, garbage, halves, and what an honest rank sends, before and while ranks come."""
        generator = random.Random(3)
        ranks = [self.start(0)]
        held = [self.rank0_port(self.port)]
        stop = threading.Event()

        def attack():
            run = hashlib.sha256().digest()  # of no name: what these ranks ask for
            hello = MAGIC + run + bytes(16) + self.port.to_bytes(8, "little") + bytes(32)
            while not stop.is_set():
                try:
                    stranger = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)
                except OSError:
                    return  # rank 0 has stopped to listen
                kind = generator.randrange(5)
                try:
                    if kind == 1:
                        stranger.sendall(generator.randbytes(600))
                    elif kind == 2:
                        stranger.sendall(hello[: generator.randrange(HELLO_BYTES)])
                    elif kind == 3:
                        stranger.sendall(hello + generator.randbytes(300))
                    elif kind == 4:
                        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" + bytes(600))
                except OSError:
                    pass
                held.append(stranger)
                if len(held) > 300:
                    held.pop(0).close()

        attackers = [threading.Thread(target=attack) for _ in range(2)]
        for attacker in attackers:
            attacker.start()
        while len(held) < 200 and attackers[0].is_alive():
            time.sleep(0.01)
        ranks += [self.start(rank) for rank in (1, 2)]
        self.sums(ranks)
        stop.set()
        for attacker in attackers:
            attacker.join()
        # afterwards, no rank listens on any port
        for rank in ranks:
            with open(f"/proc/{rank.pid}/net/tcp") as tcp, open(f"/proc/{rank.pid}/net/tcp6") as tcp6:
                listening = {line.split()[9] for line in [*tcp, *tcp6] if line.split()[3] == "0A"}
            sockets = {os.readlink(entry.path) for entry in os.scandir(f"/proc/{rank.pid}/fd")}
            self.assertFalse([inode for inode in listening if f"socket:[{inode}]" in sockets])
        for stranger in held:
            stranger.close()
        ranks[1].send_signal(signal.SIGKILL)
        self.expect(ranks[0], LOST, "rank 1 of 3")

    def test_squatter(self):
        """Who has the port before rank 0, and repeats what it hears, does not become rank 0."""
        with socket.create_server(("127.0.0.1", self.port)) as taken:

            def echo():
                try:
                    while True:
                        with taken.accept()[0] as rank:
                            rank.settimeout(TIMEOUT)
                            rank.sendall(rank.recv(HELLO_BYTES)[:16] + bytes(48))
                            self.assertEqual(rank.recv(1), b"")
                except OSError:
                    pass

            squatter = threading.Thread(target=echo)
            squatter.start()
            self.sums(self.start_all())
            taken.shutdown(socket.SHUT_RDWR)
            squatter.join()

    def test_passed_on(self):
        """Who has a port before rank 0 cannot fill rank 0's room for ranks with what it hears from them."""
        with socket.create_server(("127.0.0.1", self.port)) as taken:
            ranks = [self.start(rank) for rank in (0, 1)]
            with taken.accept()[0] as rank:
                hello = rank.recv(HELLO_BYTES, socket.MSG_WAITALL)
        with self.rank0_port(self.port + 1) as first:
            first.sendall(hello)
            self.assertEqual(first.recv(1), b"")
        self.sums([*ranks, self.start(2)])


if __name__ == "__main__":
    unittest.main()
