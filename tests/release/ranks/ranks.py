#!/usr/bin/env python3
"""Ranks of the trainer on two machines, which are network namespaces, one of which is lost; and runs that torchrun and srun start.

Takes the programs from the environment, as tests/integration/trainer_tcp.py does. Test Machines runs in a network namespace: unshare --net.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

integration = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../integration")
sys.path[:0] = [integration, f"{integration}/python"]

from python_ranks import slurm
from trainer_ranks import TIMEOUT, TRAINER
from trainer_tcp import LOST, LOST_SECONDS, TcpPrograms

ADDRESSES = ("10.77.0.1", "10.77.0.2")  # of the two machines

# Kills rank 1 of the first start when there is a checkpoint.
VICTIM = """
if [ "$RANK" = 1 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then
	"$@" &
	while ! ls "$OUTPUT"/checkpoint-* >/dev/null 2>&1; do sleep 0.02; done
	kill -9 $!
	wait $!
	exit $?
fi
exec "$@"
"""


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


class Machines(TcpPrograms):
    """This process is in the namespace of the first machine; a child keeps that of the second."""

    @classmethod
    def setUpClass(cls):
        ip("link", "set", "lo", "up")
        super().setUpClass()
        cls.other = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"], stdout=subprocess.PIPE, text=True)
        cls.other.stdout.readline()
        ip("link", "add", "one", "type", "veth", "peer", "name", "two", "netns", str(cls.other.pid))
        ip("address", "add", f"{ADDRESSES[0]}/24", "dev", "one")
        cls.inside = ["nsenter", f"--net=/proc/{cls.other.pid}/ns/net"]
        for command in ("link set lo up", f"address add {ADDRESSES[1]}/24 dev two", "link set two up"):
            subprocess.run([*cls.inside, "ip", *command.split()], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.other.kill()
        cls.other.communicate()
        super().tearDownClass()

    def setUp(self):
        ip("link", "set", "one", "up")

    def start_machines(self, name, *arguments):
        """Two ranks on each machine."""
        command = [TRAINER, self.recipe, "--output", f"{self.folder}/{name}", "--resume=auto", *arguments]
        common = {**os.environ, "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29511", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2",
                  "LOADERD_RANKS_KEY": "0123456789abcdef"}  # fmt: skip
        return [
            subprocess.Popen([*(self.inside if rank > 1 else []), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank % 2)})
            for rank in range(4)
        ]  # fmt: skip

    def lose(self, name, how, survivors):
        """Loses the second machine; the other goes on with two ranks."""
        ranks = self.start_machines(name, "checkpoint.every_steps=5")
        self.wait_for_step(name, ranks[0], 12)
        how(ranks)
        begin = time.monotonic()
        said = [ranks[rank].communicate(timeout=TIMEOUT)[0] for rank in survivors]
        self.assertLess(time.monotonic() - begin, LOST_SECONDS)
        print(f"{name}: ended after {time.monotonic() - begin:.1f} s", file=sys.stderr)
        for rank, text in zip(survivors, said, strict=True):
            self.assertEqual(ranks[rank].returncode, LOST, text)
            self.assertRegex(text, r"rank [0-3] of 4 \(process \d+ on \S+\) went away")
        for rank in ranks:
            rank.communicate(timeout=TIMEOUT)
        self.expect(self.run_ranks(2, name, "--resume=auto"), 0, "resumed at step")
        self.check_like_one(name)

    def test_killed(self):
        self.lose("killed", lambda ranks: [rank.send_signal(signal.SIGKILL) for rank in ranks[2:]], (0, 1))

    def test_cut(self):
        """All ranks live, but no packet comes through any more."""
        self.lose("cut", lambda ranks: ip("link", "set", "one", "down"), range(4))


class Launchers(TcpPrograms):
    def test_torchrun(self):
        """A rank is killed; torchrun starts both again, which continue. Its agent uses MASTER_PORT itself, or with --standalone it does not."""
        # Debian 12's PyTorch needs the redirections with Python 3.11; all versions know these spellings
        command = ["torchrun", "--nproc_per_node", "2", "--max_restarts", "1", "-r", "1", "-t", "1", "--no_python"]
        if not shutil.which("torchrun") or subprocess.run([*command, "true"], capture_output=True).returncode:
            self.skipTest("no torchrun")
        for store in ([], ["--standalone"]):
            name = f"again{len(store)}"
            output = f"{self.folder}/{name}"
            trainer = ["sh", "-c", VICTIM, "sh", TRAINER, self.recipe, "--output", output, "--resume=auto", "checkpoint.every_steps=5"]
            done = subprocess.run([command[0], *store, *command[1:], *trainer], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=TIMEOUT, env={**os.environ, "OUTPUT": output})  # fmt: skip
            self.expect((done.stdout, done.returncode), 0, "went away", "exitcode: 75", "resumed at step")
            self.check_like_one(name)

    @unittest.skipUnless(all(map(shutil.which, ("munged", "slurmctld", "slurmd", "srun"))), "no Slurm: munge, slurmctld, slurmd, slurm-client")
    def test_srun(self):
        """Without MPI's plugins."""
        with tempfile.TemporaryDirectory() as folder, slurm(folder) as environment:
            command = ["srun", "--immediate=60", "--mpi=none", "-n", "2", TRAINER, self.recipe, "--output", f"{self.folder}/slurm"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT, env=environment)
            self.expect((done.stdout, done.returncode), 0, "ranks    2, each with 6 images")
            self.check_like_one("slurm")


if __name__ == "__main__":
    unittest.main()
