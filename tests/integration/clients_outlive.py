"""Clients of all kinds, two per user, at one service while its workers, and later the service itself, are killed.

libfeed in C, the Python package, the trainer and loaderbench must get the same bytes as without interruption, each sample once per epoch and
none bad, and report each reconnect in one line. Afterwards no resource may be left. LOADERD_TEST_KILLS and LOADERD_TEST_RESTARTS set the counts.
"""

import ctypes
import functools
import hashlib
import itertools
import json
import os
import random
import re
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

KILLS = int(os.environ.get("LOADERD_TEST_KILLS", "10"))
RESTARTS = int(os.environ.get("LOADERD_TEST_RESTARTS", "3"))
SERVICE, ALICE, BERTA = 64320, 64321, 64322  # uids without accounts
PIPELINE = "random_resized_crop(48) hflip(0.5)"
SAMPLES, BATCH = 320, 32
LAPS = {"c": 2400, "loaderbench": 2400, "python": 1200}  # batches
EPOCHS = 15  # of the trainer
PATIENCE = 300  # seconds; exceeded only by a program that hangs
BETWEEN = 0.6  # maximum seconds from a reconnect to the next kill; the supervisor starts at most two workers per second on average
AGAIN = 7  # one of this many kills is followed by a kill of the replacement worker
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

RECONNECT = re.compile(
    r"(?:loaderbench: )?The daemon on \S+ (?:went away|shut down); the feed goes on at epoch (\d+), batch (\d+) with the one that is "
    r"there after (\d+\.\d\d) s\.$"
)

RECIPE = """
[data]
train = {dataset}
batch_size = 16
pipeline = random_resized_crop(32) hflip(0.5)
[model]
name = resnet_cifar
depth = 8
width = 0.5
[train]
epochs = {epochs}
seed = 4
threads = 1
precision = fp32
[log]
interval = 1
samples = yes
[checkpoint]
every = 5
"""

libc = ctypes.CDLL(None, use_errno=True)


def prctl(option, value):
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "prctl")


def spawn(uid, run, stdout, stderr):
    """Forks a process as this user, without supplementary groups, that calls run() and exits. It is killed when its parent ends."""
    pid = os.fork()
    if pid > 0:
        return pid
    status = 1
    try:
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        run()
        status = 0
    except BaseException as error:  # an escaping exception would continue with the rest of this file
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status)


@functools.cache
def open_once(path):
    return os.open(path, os.O_RDONLY)


def program(path, *arguments):
    """Returns a function that executes the program. Opens it before the uid changes, because its folder may be closed to the user."""
    return functools.partial(os.execve, open_once(path), [path, *arguments], os.environ)


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        return [int(child) for child in children.read().split()]


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: {what() if callable(what) else what}")
        time.sleep(0.005)


class Service:
    """A supervisor that runs as a user of its own."""

    def __init__(self, folder):
        self.socket = os.path.join(folder, "socket")
        self.log = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.pid = 0

    def start(self):
        arguments = ("--config", "/dev/null", "--socket", self.socket, "--threads", "2", "--log-level", "warning",
                     "--set", "daemon.idle_ms=1000", "--set", "daemon.grace_ms=100")  # fmt: skip
        self.pid = spawn(SERVICE, program(os.environ["LOADERD"], *arguments), self.log, self.log)
        until(lambda: self.ask("--all"), "an answer of the service")

    def end(self, number):
        """Sends a signal, and waits for the end of the supervisor and its workers, which this process inherits as children."""
        before = set(children_of(os.getpid())) - {self.pid}
        os.kill(self.pid, number)

        def have_ended():
            for pid in set(children_of(os.getpid())) - before:
                os.waitpid(pid, os.WNOHANG)
            return set(children_of(os.getpid())) <= before

        until(have_ended, "the end of a service and its workers")
        self.pid = 0

    def ask(self, *how, uid=0):
        """Returns the status as loaderctl prints it for the administrator or a user; None if the daemon does not answer."""
        reading, writing = os.pipe()
        with open(os.devnull, "w") as nowhere:
            pid = spawn(
                uid, program(os.environ["LOADERCTL"], "--socket", self.socket, "--json", *how), writing, nowhere.fileno()
            )
        os.close(writing)
        with os.fdopen(reading) as answer:
            text = answer.read()
        _, status = os.waitpid(pid, 0)
        return json.loads(text) if status == 0 else None

    def worker(self, uid):
        for pid in children_of(self.pid):
            try:
                with open(f"/proc/{pid}/cmdline") as line:
                    words = line.read().split("\0")
            except OSError:
                continue
            if words[1:3] == ["--worker", str(uid)]:
                return pid
        return None

    def kill_worker(self, uid, but=None):
        """Waits for a worker of this user other than the one just killed, and kills it. Returns its pid."""
        found = []

        def there():
            found[:] = [pid for pid in [self.worker(uid)] if pid not in (None, but)]
            return found

        until(there, f"a worker of user {uid}")
        os.kill(found[0], signal.SIGKILL)
        return found[0]

    def descriptors(self):
        return sorted(os.listdir(f"/proc/{self.pid}/fd"), key=int)


class Client:
    """A client program, which is started again after each complete run (a lap)."""

    def __init__(self, test, uid):
        self.test, self.uid = test, uid
        self.name = type(self).__name__.lower()
        self.laps = 0
        self.process = None
        self.waits = []  # seconds from the end of a daemon to the first batch of the next one
        self.away = []  # the part of these seconds without a feed, as reported by the client
        self.positions = set()  # at which feeds were resumed

    def begin(self):
        reading, writing = os.pipe()
        self.output = tempfile.TemporaryFile(dir=self.test.folder)
        self.said, self.unread, self.reconnects, self.held = [], b"", [], None
        self.prepare()
        self.process = spawn(self.uid, self.run(), self.output.fileno(), writing)
        os.close(writing)
        self.pipe = reading
        self.test.selector.register(reading, selectors.EVENT_READ, self)

    def prepare(self):
        pass

    def read(self):
        now = time.monotonic()
        data = os.read(self.pipe, 1 << 16)
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            self.said.append(line.decode())
            if match := RECONNECT.match(self.said[-1]):
                self.reconnects.append(now)
                self.positions.add(match.group(1, 2))
                self.away.append(float(match[3]))
        if not data:
            self.finish()

    def finish(self):
        self.test.selector.unregister(self.pipe)
        os.close(self.pipe)
        _, status = os.waitpid(self.process, 0)
        self.process = None
        self.laps += 1
        self.output.seek(0)
        output = self.output.read().decode()
        self.output.close()
        self.test.assertEqual(status, 0, f"{self.name}: {self.said}, {output}")
        result = self.result(output)
        self.test.judge(self, result)

    def expect_no_more_held(self):
        """Checks that a reconnect leaks no descriptors (other than files) or rings: no more descriptors than after the lap's first reconnect,
        and at most two rings, each with its ack page: the current one, and one whose batch may be in use."""
        if self.process is None:
            return
        try:
            with open(f"/proc/{self.process}/maps") as maps:
                rings = maps.read().count("memfd:loaderd-")
            links = [os.readlink(f"/proc/{self.process}/fd/{fd}") for fd in os.listdir(f"/proc/{self.process}/fd")]
        except OSError:
            return  # a descriptor was closed meanwhile, or the client has ended
        held = sorted(link.split(":")[0] for link in links if not link.startswith("/") or link.startswith("/memfd:"))
        self.held = self.held or held
        self.test.assertLessEqual(rings, 4, self.name)
        self.test.assertLessEqual(len(held), len(self.held), f"{self.name}: {held}, and {self.held} after the first reconnect")

    def result(self, output):
        """Returns the output that must be equal in all laps. The client may print nothing else except reconnects."""
        self.test.assertEqual(len(self.said), len(self.reconnects), f"{self.name}: {self.said}")
        return output.split()[0]


class C(Client):
    def run(self):
        return program(os.environ["FEED_RECOUNT"], self.test.service.socket, self.test.datasets[self.uid], PIPELINE,
                       str(BATCH), str(LAPS["c"]))  # fmt: skip


class Loaderbench(Client):
    def run(self):
        return program(os.environ["LOADERBENCH"], "--socket", self.test.service.socket, "--hash", str(LAPS["loaderbench"]), "--batch",
                       str(BATCH), self.test.datasets[self.uid], PIPELINE)  # fmt: skip


class Python(Client):
    def run(self):
        import loaderd  # before the fork, because the interpreter's folder may be closed to the user

        def take():
            digest = hashlib.sha256()
            feed = loaderd.Feed(self.test.datasets[self.uid], pipeline=PIPELINE, batch_size=BATCH, shuffle=True, seed=7,
                                timeout=PATIENCE, socket=self.test.service.socket)  # fmt: skip
            for _ in range(LAPS["python"] * BATCH // SAMPLES):
                samples = []
                for batch in feed:
                    assert batch.bad == 0, batch.bad
                    for name in ("images", "labels", "samples", "flags"):
                        digest.update(bytes(batch.buffer(name)))
                    samples += memoryview(batch.buffer("samples")).tolist()
                assert sorted(samples) == list(range(SAMPLES)), samples
            os.write(1, f"{digest.hexdigest()} {feed.reconnects}\n".encode())

        return take

    def result(self, output):
        digest, reconnects = output.split()
        self.test.assertEqual(int(reconnects), len(self.reconnects), self.said)
        return super().result(digest)


class Trainer(Client):
    def prepare(self):
        self.folder = os.path.join(self.test.homes[self.uid], f"run-{self.laps}")
        self.recipe = os.path.join(self.test.homes[self.uid], "tiny.ini")
        with open(self.recipe, "w") as file:
            file.write(RECIPE.format(dataset=self.test.datasets[self.uid], epochs=EPOCHS))

    def run(self):
        return program(os.environ["TRAINER"], self.recipe, "--device", "cpu", "--socket", self.test.service.socket, "--output", self.folder)

    def lines(self, name, event=None):
        with open(os.path.join(self.folder, name)) as file:
            entries = [json.loads(line) for line in file]
        return [entry for entry in entries if event in (None, entry["event"])]

    def result(self, output):
        texts = [entry["text"] for entry in self.lines("log.jsonl", "reconnect")]
        self.test.assertEqual(texts, [line for line in self.said if RECONNECT.match(line)])
        epochs = self.lines("log.jsonl", "epoch")
        self.test.assertEqual([entry["bad_samples"] for entry in epochs], [0] * EPOCHS)
        steps = self.lines("log.jsonl", "step")
        batches = [line["samples"] for line in self.lines("samples.jsonl")]
        self.test.assertEqual([entry["step"] for entry in steps], list(range(1, len(batches) + 1)))
        each = len(batches) // EPOCHS
        for first in range(0, len(batches), each):
            samples = sum(batches[first : first + each], [])
            self.test.assertEqual(sorted(samples), list(range(SAMPLES)))
        with open(os.path.join(self.folder, "model.safetensors"), "rb") as file:
            weights = hashlib.sha256(file.read()).hexdigest()
        return weights, [entry["loss_hex"] for entry in steps], batches


class ClientsOutlive(unittest.TestCase):
    def setUp(self):
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        os.chmod(self.folder, 0o755)
        os.chdir(self.folder)
        self.addCleanup(os.chdir, "/")
        self.selector = selectors.DefaultSelector()
        self.results = {}
        self.random = random.Random(11)
        self.addCleanup(self.kill_all)
        self.make_homes()
        self.service = Service(self.make_home(SERVICE))
        self.service.start()
        self.clients = [C(self, ALICE), Trainer(self, ALICE), Python(self, BERTA), Loaderbench(self, BERTA)]

    def make_home(self, uid):
        path = os.path.join(self.folder, str(uid))
        os.mkdir(path)
        os.chown(path, uid, uid)
        return path

    def make_homes(self):
        """Gives each user a dataset that only they can read."""
        images = os.path.join(self.folder, "images")
        subprocess.run([os.environ["SHAPES"], images, "--count", "400", "--val", "0.2"], check=True, stdout=subprocess.DEVNULL)
        self.homes, self.datasets = {}, {}
        packed = os.path.join(self.folder, "images.pimg")
        subprocess.run([os.environ["PACKIMG"], "convert", images + "/train", "-o", packed, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        for uid in (ALICE, BERTA):
            self.homes[uid] = self.make_home(uid)
            self.datasets[uid] = os.path.join(self.homes[uid], "images.pimg")
            with open(packed, "rb") as file, open(self.datasets[uid], "wb") as copy:
                copy.write(file.read())
            os.chown(self.datasets[uid], uid, uid)
            os.chmod(self.datasets[uid], 0o600)
            os.chmod(self.homes[uid], 0o700)

    @staticmethod
    def kill_all():
        """Kills all processes that a failed test has left. They are children of this process, which is a subreaper."""
        for pid in children_of(os.getpid()):
            os.kill(pid, signal.SIGKILL)
        while children_of(os.getpid()):
            os.waitpid(-1, 0)

    # ---- laps ----

    def judge(self, client, result):
        """The result must equal that of the first lap, which ran undisturbed."""
        first = self.results.setdefault(client.name, result)
        self.assertTrue(result == first, f"{client.name}: lap {client.laps} is another one")

    def read_output(self, seconds=0.0):
        for key, _ in self.selector.select(seconds):
            key.data.read()

    def read_output_until(self, condition, what):
        end = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), end, f"{what}; said: {[client.said[-3:] for client in self.clients]}")
            self.read_output(0.05)

    def read_output_for(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.read_output(left)

    def wait_for_batches(self, clients):
        """Waits until each client has received batches from the current daemon or finished its lap: the daemon has made more batches than there are slots, so the client has
        released one, and it reports a reconnect before that."""

        def have_batches():
            for uid in {client.uid for client in waiting}:
                feeds = self.service.ask(uid=uid)["feeds"]
                pids = {feed["pid"] for feed in feeds if feed["images"] > feed["slots"] * feed["batch_size"]}
                waiting[:] = [client for client in waiting if client.process and client.process not in pids]
            return not waiting

        waiting = list(clients)
        self.read_output_until(have_batches, "batches to all clients")
        self.read_output()

    def start_clients(self):
        new = [client for client in self.clients if client.process is None]
        for client in new:
            client.begin()
        self.wait_for_batches(new)

    def finish_laps(self):
        self.read_output_until(lambda: all(client.process is None for client in self.clients), "the end of all laps")

    # ---- disturbance ----

    def disturb(self, clients, end, most=1):
        """Calls end(), which ends up to `most` daemons and returns the time. Each of these clients must report each end in one line, unless it
        finishes its lap first; other clients must report nothing."""
        before = {client: (client.laps, len(client.reconnects)) for client in self.clients if client.process}
        ended = end()

        def new_reconnects(client):
            laps, lines = before[client]
            return len(client.reconnects) - lines if client.laps == laps else None

        clients = [client for client in clients if client in before]
        self.read_output_until(lambda: all(new_reconnects(client) != 0 for client in clients), "a line of each client")
        if most > 1:
            self.wait_for_batches(clients)  # otherwise a further line may follow
        for client in clients:
            if new_reconnects(client):
                client.waits.append(client.reconnects[-1] - ended)
        self.read_output_for(self.random.uniform(0, BETWEEN))
        for client in before:
            lines = new_reconnects(client)
            if lines is not None:
                self.assertIn(lines, range(1, most + 1) if client in clients else (0,), client.name)
        for client in clients:
            client.expect_no_more_held()

    def kill_worker(self, uid, again):
        clients = [client for client in self.clients if client.uid == uid]

        def end():
            killed = self.service.kill_worker(uid)
            if again:
                self.service.kill_worker(uid, but=killed)
            return time.monotonic()

        self.disturb(clients, end, most=2 if again else 1)

    def restart(self, number):
        def end():
            ended = time.monotonic()
            self.service.end(number)
            self.service.start()
            return ended

        self.disturb(self.clients, end)

    def report(self, what):
        for client in self.clients:
            if client.waits:
                waits, away = ([1000 * wait for wait in waits] for waits in (client.waits, client.away))
                print(
                    f"{what}: {client.name}: lap {client.laps}, {len(away)} reconnects at {len(client.positions)} positions; to the next "
                    f"daemon's first batch {statistics.median(waits):.0f} ms, at most {max(waits):.0f} ms; without a feed "
                    f"{statistics.median(away):.0f} ms, at most {max(away):.0f} ms",
                    flush=True,
                )
            client.waits, client.away, client.positions = [], [], set()

    def expect_nothing_left(self, folder, descriptors):
        """After the clients' end: no shared memory, workers, descriptors, processes or files may be left."""

        def idle():
            return not children_of(self.service.pid) and len(self.service.descriptors()) <= len(descriptors)

        def describe():
            return f"the supervisor without workers and their descriptors; it has {self.service.descriptors()}, had {descriptors}"

        until(idle, describe)
        status = self.service.ask("--all")
        self.assertEqual((status["shared_bytes"], status["feeds"]), (0, []))
        with open(f"/proc/{self.service.pid}/maps") as maps:
            self.assertNotIn("memfd:loaderd-", maps.read())
        self.assertEqual(sorted(os.listdir(os.path.dirname(self.service.socket))), folder)

    def test_workers_and_services_die(self):
        folder = sorted(os.listdir(os.path.dirname(self.service.socket)))
        descriptors = self.service.descriptors()
        self.start_clients()
        self.finish_laps()
        self.assertEqual([client.reconnects for client in self.clients], [[]] * len(self.clients))
        self.assertEqual(self.results["c"], self.results["loaderbench"])  # so loaderbench, too, got each sample once, which the C client checks
        killed, turns = 0, itertools.cycle((ALICE, BERTA))
        while killed < KILLS:
            self.start_clients()
            again = self.random.randrange(AGAIN) == 0
            self.kill_worker(next(turns), again)
            killed += 1 + again
        self.finish_laps()
        self.report(f"{killed} workers killed")
        self.expect_nothing_left(folder, descriptors)
        for i in range(RESTARTS):
            self.start_clients()
            self.restart(signal.SIGTERM if i % 4 == 1 else signal.SIGKILL)
        self.finish_laps()
        self.report(f"{RESTARTS} services ended")
        self.expect_nothing_left(folder, descriptors)
        self.service.end(signal.SIGTERM)
        self.assertEqual(children_of(os.getpid()), [])  # orphans would have become children


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("needs root, to be several users in turn")
        sys.exit(77)  # skipped
    unittest.main()
