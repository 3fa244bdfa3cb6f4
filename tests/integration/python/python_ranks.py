"""Several processes that share an epoch with the real daemon ($LOADERD): each sample once, whether its feed is created before
or after the process group.

Images are drawn by $SHAPES and packed by $PACKIMG. Each rank is a process that runs this file with the name of a task.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import warnings

import loaderd

HAVE_TORCH = importlib.util.find_spec("torch") is not None
HAVE_JAX = importlib.util.find_spec("jax") is not None
HAVE_DEEPSPEED = importlib.util.find_spec("deepspeed") is not None
HAVE_RAY = importlib.util.find_spec("ray") is not None and importlib.util.find_spec("ray.train") is not None
PATIENCE = 240  # s; for processes that import PyTorch or JAX on a busy machine
WORLD = 2
# Variables that each launcher sets for rank {rank} of 2 on one machine.
LAUNCHERS = {
    "torchrun, Accelerate": {"RANK": "{rank}", "WORLD_SIZE": "2", "LOCAL_RANK": "{rank}", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"},
    "DeepSpeed": {"RANK": "{rank}", "WORLD_SIZE": "2", "LOCAL_RANK": "{rank}", "LOCAL_SIZE": "2", "CROSS_RANK": "0", "CROSS_SIZE": "1"},
    "Ray Train": {"RANK": "{rank}", "WORLD_SIZE": "2", "LOCAL_RANK": "{rank}", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0"},
    "Lightning": {"LOCAL_RANK": "{rank}", "NODE_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
    "JAX": {"JAX_PROCESS_ID": "{rank}", "JAX_NUM_PROCESSES": "2"},
    "Horovod": {"HOROVOD_RANK": "{rank}", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_SIZE": "2"},
    "Open MPI": {"OMPI_COMM_WORLD_RANK": "{rank}", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
    "MVAPICH": {"MV2_COMM_WORLD_RANK": "{rank}", "MV2_COMM_WORLD_SIZE": "2", "MV2_COMM_WORLD_LOCAL_SIZE": "2"},
    "MPICH, Intel MPI": {"PMI_RANK": "{rank}", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"},
    "jsrun": {"JSM_NAMESPACE_RANK": "{rank}", "JSM_NAMESPACE_SIZE": "2"},
    "srun": {"SLURM_PROCID": "{rank}", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2"},
}


def open_feed(path, **options):
    return loaderd.Feed(path, pipeline="resize(32x32)", batch_size=16, shuffle=True, daemon="private", **{"rank": "auto", **options})


def samples_of(batches):
    return [int(sample) for batch in batches for sample in memoryview(batch.buffer("samples"))]


def join(group, rank):
    """Makes this process a rank of the group "torch:FILE" or "jax:HOST:PORT"."""
    kind, _, where = group.partition(":")
    if kind == "torch":
        import torch.distributed

        if where:
            torch.distributed.init_process_group("gloo", init_method=f"file://{where}", rank=rank, world_size=WORLD)
        else:
            torch.distributed.init_process_group("gloo")  # torchrun has set the variables
    else:
        import jax

        jax.distributed.initialize(where, WORLD, rank)


def before(path, group, rank):
    """Opens the feed before the group exists, as with Lightning, which creates the group in fit()."""
    feed = open_feed(path)
    join(group, rank)
    return [samples_of(feed) for _ in range(2)]


def after(path, group, rank):
    join(group, rank)
    feed = open_feed(path)
    return [samples_of(feed) for _ in range(2)]


def no_rank(path, group, rank):
    """Omits rank="auto": the batches are the same, with a warning."""
    feed = open_feed(path, rank=None)
    join(group, rank)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        samples = [samples_of(feed) for _ in range(2)]
    assert [w.category for w in said] == [loaderd.RankWarning] and f"rank {rank} of 2 by torch.distributed" in str(said[0].message), said
    return samples


def too_late(path, group, rank):
    """Takes a batch before the group exists: the next batch is an error, on both ranks."""
    feed = open_feed(path)
    next(iter(feed))
    join(group, rank)
    try:
        next(iter(feed))
    except loaderd.RankChanged as error:
        assert f"rank 0 of 1, but torch.distributed has since made this process rank {rank} of 2" in str(error), error
    else:
        raise AssertionError("the batches of another rank")
    feed.reset()
    return [samples_of(feed) for _ in range(2)]


def loaded(path):
    """Returns a feed with a state that a single process saved after 4 batches."""
    with open_feed(path, rank=0, world=1) as one:
        for _ in range(4):
            next(one)
        state = one.state_dict()
    feed = open_feed(path)
    feed.load_state_dict(state)
    return feed


def resumed(path, group, rank):
    """Loads a state before the group exists."""
    feed = loaded(path)
    join(group, rank)
    feed.set_epoch(0)
    return [samples_of(feed) for _ in range(2)]


def launched(path, group, rank):
    return [samples_of(feed) for feed in [open_feed(path)] for _ in range(2)]


def launched_again(path, group, rank):
    """Loads a state, like a job that a launcher restarts."""
    return [samples_of(feed) for feed in [loaded(path)] for _ in range(2)]


def by_ray(path, group, rank):
    """Lets Ray Train start the ranks. group is "TRAINER:FOLDER:TASK,...": the ranks run these tasks and write their results to the folder."""
    import ray
    import ray.train
    import ray.train.torch
    import ray.train.v2.api.data_parallel_trainer

    kind, folder, tasks = group.split(":")
    trainers = {"torch": ray.train.torch.TorchTrainer, "plain": ray.train.v2.api.data_parallel_trainer.DataParallelTrainer}

    todo = {name: globals()[name] for name in tasks.split(",")}  # Ray pickles the functions that `work` refers to

    def work():
        place = ray.train.get_context().get_world_rank()
        for name, task in todo.items():
            with open(os.path.join(folder, f"{name}-{place}.json"), "w") as file:
                json.dump(task(path, "", place), file)

    ray.init(num_cpus=2 * WORLD, include_dashboard=False, log_to_driver=False, _temp_dir=os.path.join(folder, "ray"))
    scaling = ray.train.ScalingConfig(num_workers=WORLD, resources_per_worker={"CPU": 1})
    trainers[kind](work, scaling_config=scaling, run_config=ray.train.RunConfig(storage_path=folder)).fit()
    return []


@contextlib.contextmanager
def slurm(folder):
    """Runs a Slurm cluster of this machine only. Its key is in `folder`, so that no other user can start jobs. Yields the environment for
    srun.
    """
    name, ports = os.uname().nodename.partition(".")[0], []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    user = pwd.getpwuid(os.getuid()).pw_name
    configuration = os.path.join(folder, "slurm.conf")
    with open(configuration, "w") as file:
        file.write(f"""\
ClusterName=check
SlurmctldHost={name}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation={folder}
SlurmdSpoolDir={folder}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
NodeName={name} NodeAddr=127.0.0.1 CPUs={WORLD} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")
    with open(os.open(f"{folder}/munge.key", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(os.urandom(128))
    # --force: munged accepts a socket that other users cannot reach
    munged = ["munged", "--foreground", "--force", *(f"--{name}-file={folder}/munge.{name}" for name in ("key", "log", "pid", "seed"))]
    environment = {**os.environ, "SLURM_CONF": configuration}
    with contextlib.ExitStack() as stack:
        for command in ([*munged, f"--socket={folder}/munge.socket"], ["slurmctld", "-D"], ["slurmd", "-D"]):
            with open(os.path.join(folder, command[0] + ".log"), "w") as log:
                daemon = stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
            stack.callback(daemon.terminate)
        yield environment


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        images, cls.path = (os.path.join(cls.folder.name, name) for name in ("images", "train.pimg"))
        subprocess.run([os.environ["SHAPES"], images, "--count", "260"], check=True, capture_output=True)
        subprocess.run([os.environ["PACKIMG"], "convert", images + "/train", "-o", cls.path], check=True, capture_output=True)
        cls.samples = loaderd.dataset(cls.path, daemon="private").samples

    def start(self, task, group="", rank=0, variables=None):
        names = {name for launcher in LAUNCHERS.values() for name in launcher}
        clean = {name: value for name, value in os.environ.items() if name not in names}
        set_here = {name: value.format(rank=rank) for name, value in (variables or {}).items()}
        return subprocess.Popen(
            [sys.executable, __file__, task, self.path, group, str(rank)],
            stdout=subprocess.PIPE, text=True, env={**clean, **set_here, "JAX_PLATFORMS": "cpu", "GLOO_SOCKET_IFNAME": "lo"},
        )  # fmt: skip

    def collect(self, processes):
        """Returns the epochs of each rank, as lists of sample numbers."""
        said = []
        for process in processes:
            with process:
                said.append(process.communicate(timeout=PATIENCE)[0])
        self.assertEqual([process.returncode for process in processes], [0] * len(processes))
        return [json.loads(line) for text in said for line in text.splitlines() if line.startswith("[[")]

    def check(self, ranks, left=None):
        """Checks that an epoch has each sample once, and no rank has all. left: number of samples left in the first epoch."""
        self.assertEqual(len(ranks), WORLD)
        for epoch in range(2):
            parts = [rank[epoch] for rank in ranks]
            self.assertTrue(all(len(part) < self.samples for part in parts))
            whole = sorted(sample for part in parts for sample in part)
            if epoch == 0 and left is not None:
                self.assertEqual((len(whole), len(set(whole))), (left, left))
            else:
                self.assertEqual(whole, list(range(self.samples)))

    def group(self, task, left=None):
        with tempfile.TemporaryDirectory() as folder:
            self.check(self.collect([self.start(task, f"torch:{folder}/group", rank) for rank in range(WORLD)]), left)

    def launch(self, *command, environment=None):
        """Lets a launcher start the ranks, then restart them from a state."""
        for task, left in (("launched", None), ("launched_again", self.samples - 4 * 16)):
            process = subprocess.Popen(
                [*command, __file__, task, self.path, "", "0"], stdout=subprocess.PIPE, text=True, env=environment or os.environ
            )
            with self.subTest(task):
                self.check(self.collect([process]), left)

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun: openmpi-bin")
    def test_mpirun(self):
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.launch("mpirun", "--oversubscribe", "-n", str(WORLD), sys.executable, environment={**os.environ, **allowed})

    @unittest.skipUnless(all(map(shutil.which, ("munged", "slurmctld", "slurmd", "srun"))), "no Slurm: munge, slurmctld, slurmd, slurm-client")
    def test_srun(self):
        with tempfile.TemporaryDirectory() as folder, slurm(folder) as environment:
            self.launch("srun", "--immediate=60", "-n", str(WORLD), sys.executable, environment=environment)

    @unittest.skipUnless(HAVE_DEEPSPEED, "no DeepSpeed")
    def test_deepspeed(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "DS_ACCELERATOR": "cpu", "HOME": folder}
            command = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", str(WORLD), "--no_local_rank"]
            self.launch(*command, environment=environment)

    @unittest.skipUnless(HAVE_RAY, "no Ray Train")
    def test_ray(self):
        """With a process group of PyTorch, and without one, where only Ray's context knows the rank."""
        for kind in ("torch", "plain"):
            with self.subTest(kind), tempfile.TemporaryDirectory() as folder:
                environment = {**os.environ, "HOME": folder, "RAY_USAGE_STATS_ENABLED": "0"}
                command = [sys.executable, __file__, "by_ray", self.path, f"{kind}:{folder}:launched,launched_again", "0"]
                subprocess.run(command, check=True, timeout=PATIENCE, env=environment, stdout=subprocess.DEVNULL)
                for task, left in (("launched", None), ("launched_again", self.samples - 4 * 16)):
                    parts = [pathlib.Path(folder, f"{task}-{rank}.json").read_text() for rank in range(WORLD)]
                    self.check([json.loads(part) for part in parts], left)

    def test_launchers(self):
        for name, variables in LAUNCHERS.items():
            with self.subTest(name):
                self.check(self.collect([self.start("launched", "", rank, variables) for rank in range(WORLD)]))

    @unittest.skipUnless(HAVE_TORCH, "no PyTorch")
    def test_feeds_before_the_group(self):
        self.group("before")

    @unittest.skipUnless(HAVE_TORCH, "no PyTorch")
    def test_feeds_after_the_group(self):
        self.group("after")

    @unittest.skipUnless(HAVE_TORCH, "no PyTorch")
    def test_feeds_without_rank(self):
        self.group("no_rank")

    @unittest.skipUnless(HAVE_TORCH, "no PyTorch")
    def test_a_batch_before_the_group(self):
        self.group("too_late")

    @unittest.skipUnless(HAVE_TORCH, "no PyTorch")
    def test_resuming_before_the_group(self):
        self.group("resumed", left=self.samples - 4 * 16)

    @unittest.skipUnless(HAVE_TORCH and importlib.metadata.version("torch") >= "2", "no PyTorch whose torchrun runs with this Python")
    def test_torchrun(self):
        """Uses the launcher itself; the feed is created before or after the group."""
        for task in ("before", "after"):
            process = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(WORLD), __file__, task, self.path,
                 "torch:", "0"],
                stdout=subprocess.PIPE, text=True, env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            with self.subTest(task):
                self.check(self.collect([process]))

    @unittest.skipUnless(HAVE_JAX, "no JAX")
    def test_jax(self):
        for task in ("before", "after"):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                group = f"jax:127.0.0.1:{free.getsockname()[1]}"
            with self.subTest(task):
                self.check(self.collect([self.start(task, group, rank) for rank in range(WORLD)]))


if __name__ == "__main__":
    if len(sys.argv) == 5:
        # One write, so that lines of ranks that share standard output stay whole.
        os.write(1, (json.dumps(globals()[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))) + "\n").encode())
    else:
        unittest.main()
