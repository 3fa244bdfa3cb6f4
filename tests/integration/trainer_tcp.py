"""The trainer on ranks that connect over TCP: losses as over MPI, a rank that is killed, and the run that goes on without it."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import unittest

import trainer_ranks
from trainer_ranks import TIMEOUT, TRAINER, Programs

LOST, LOST_SECONDS = 75, 10  # status of ranks when another is gone, and the time until then


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class TcpPrograms(Programs):
    def start_ranks(self, world, name, *arguments, prefix=()):
        """Starts ranks with the variables that torchrun sets. prefix: a command that starts the trainer, as env does."""
        common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world),
                  "LOCAL_WORLD_SIZE": str(world), "LOADERD_RANKS_KEY": secrets.token_hex()}  # fmt: skip
        command = [*prefix, TRAINER, self.recipe, "--output", f"{self.folder}/{name}", *arguments]
        return [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(world)
        ]  # fmt: skip

    def finish(self, ranks):
        """Returns what all ranks said, and their statuses."""
        said = [rank.communicate(timeout=TIMEOUT)[0] for rank in ranks]
        return said, [rank.returncode for rank in ranks]

    def run_ranks(self, world, name, *arguments, **keys):
        said, statuses = TcpPrograms.finish(self, TcpPrograms.start_ranks(self, world, name, *arguments, **keys))
        return "".join(said), max(statuses)


class Tcp(TcpPrograms):
    def test_like_one_rank(self):
        self.check_ranks(3)

    def test_goes_on_with_fewer(self):
        """A rank is killed; the others end with status 75, and two ranks continue from the checkpoint before the damaged one."""
        ranks = self.start_ranks(3, "fewer", "checkpoint.every_steps=5", "checkpoint.keep=9", "--resume=auto")
        self.wait_for_step("fewer", ranks[0], 12)
        ranks[1].send_signal(signal.SIGKILL)
        begin = time.monotonic()
        said, statuses = self.finish(ranks)
        self.assertLess(time.monotonic() - begin, LOST_SECONDS)
        self.assertEqual(statuses, [LOST, -signal.SIGKILL, LOST], said)
        for rank in (0, 2):
            self.assertIn(f"rank 1 of 3 (process {ranks[1].pid} on {socket.gethostname()}) went away", said[rank])
        saved = sorted(entry for entry in os.listdir(f"{self.folder}/fewer") if entry.startswith("checkpoint-"))
        os.truncate(f"{self.folder}/fewer/{saved[-1]}", 5000)
        self.expect(self.run_ranks(2, "fewer", "--resume=auto"), 0, "trying the previous checkpoint", f"resumed at step {int(saved[-2][11:19])}")
        self.check_like_one("fewer")

    def test_own_reason(self):
        """A rank that fails by itself ends the others with its reason, and not with status 75."""
        said, statuses = self.finish(self.start_ranks(2, "full", prefix=("sh", "-c", 'ulimit -f 100; exec "$0" "$@"')))
        self.assertEqual(statuses, [1, 1], said)
        self.assertIn("File too large", said[0])
        self.assertEqual(said[1].count("trainer:"), 0, said[1])
        self.expect(self.run_ranks(2, "wrong", "data.bathc_size=3"), 1, "did you mean data.batch_size?")


class Variants(TcpPrograms):
    def test_like_mpi(self):
        if not trainer_ranks.MPIRUN or os.environ.get("HAVE_MPI") != "1":
            self.skipTest("no MPI")
        short = ("train.epochs=0.5", "data.val=", "data.val_pipeline=")
        self.expect(self.run_ranks(2, "tcp2", *short), 0)
        self.expect(Programs.run_ranks(self, 2, "mpi2", *short), 0)
        tcp, mpi = ([step["loss"] for step in self.steps(name)] for name in ("tcp2", "mpi2"))
        self.assertLess(max(abs(a / b - 1) for a, b in zip(tcp, mpi, strict=True)), 1e-5)


if __name__ == "__main__":
    if "Variants" not in sys.argv:
        del Variants
    unittest.main()
