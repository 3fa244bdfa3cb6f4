"""The loaders that are compared: loaderd through loaderbench, and the peer programs, with their start-up, measurement and end.

A running loader has properties (settings, versions, and others that it reports), by_round (its report on the latest
measurement), and the methods measure(), pause() and close(). Failure is raised with the last output of a program that fails.
"""

import json
import os
import pathlib
import queue
import signal
import subprocess
import tempfile
import threading
import time

from peer import ORDERED, STRUCTURED

HERE = pathlib.Path(__file__).resolve().parent
END_LIMIT = 10  # seconds in which a killed program must end
START_LIMIT = 240  # seconds in which all programs, started together, must deliver their first batches (FFCV compiles first)
FEEDS = ("short256", "original", "raw")
JPEG = ("short256", "original")
MIX, BUCKETS = ("mix",), ("buckets",)
CROPS = ("views2", "views10")
VIEWS = (*CROPS, "simclr")
# Of structured samples: the pipeline of loaderd behind crop and flip, and the values beside the image.
VALUES = {
    "mask512": ("", "mask"),
    "mask2048": ("", "mask"),
    "boxes": ("boxes: sanitize_boxes", "boxes,class"),
    "depth16": ("depth: filter(bilinear)", "depth"),
}


class Failure(Exception):
    pass


def environment_python(name):
    peers = os.environ.get("LOADERD_PEERS") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "loaderd/peers"
    )
    python = os.path.join(peers, name, "bin/python")
    if not os.access(python, os.X_OK):
        raise Failure(f"not installed (bench/peers/install {name})")
    return python


def client_environment(build):
    """Returns the environment of a Python program that uses loaderd of this build."""
    return {**os.environ, "PYTHONPATH": str(build / "proto/python"), "LOADERD": str(build / "loaderd/loaderd")}


def last_output(file):
    file.seek(0)
    lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


class Program:
    """A running program with the protocol of peer.py. limit: timeout in seconds of its start, and of an answer after the requested time."""

    def __init__(self, command, cpus, limit=START_LIMIT, environment=None):
        self.limit = limit
        self.begin = time.monotonic()
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        )
        self.lines, self.received = queue.SimpleQueue(), []
        self.by_round = {}
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        with self.process.stdout as output:
            for line in output:
                if line.startswith("{"):
                    self.lines.put(line)
        self.lines.put(None)

    def age(self):
        return time.monotonic() - self.begin

    def wait_started(self):
        """Waits for the first batches, so that building and compiling count as start-up."""
        self.ask(0, 0)
        self.wait_ready()
        self.read(self.limit)

    def wait_ready(self):
        """Waits for the program's report that it is ready, and returns it."""
        self.properties = self.read(self.limit)
        return self.properties

    def ask(self, warmup, seconds):
        try:
            self.process.stdin.write(f"measure {warmup} {seconds}\n")
            self.process.stdin.flush()
        except OSError:
            raise Failure(self.final_output()) from None

    def final_output(self):
        """Returns the last output of a program that has ended."""
        try:
            status = self.process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            status = 0
        return last_output(self.errors) + (f" (ended by {signal.Signals(-status).name})" if status < 0 else "")

    def has_output(self, seconds):
        """Waits up to that number of seconds for a line of JSON or the end of output; returns whether either came."""
        if not self.received:
            try:
                self.received.append(self.lines.get(timeout=max(0, seconds)))
            except queue.Empty:
                return False
        return True

    def read(self, limit):
        """Returns the next line of JSON. Kills the program if it takes longer than limit seconds."""
        if not self.has_output(limit):
            self.kill()
            raise Failure(f"no answer within {limit:.0f} s; its last words: {last_output(self.errors)}")
        if self.received[0] is None:
            raise Failure(self.final_output())
        return json.loads(self.received.pop())

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        self.signal(signal.SIGKILL)

    def measure(self, warmup, seconds):
        self.resume()
        self.ask(warmup, seconds)
        found = self.read(self.limit + warmup + seconds)
        self.by_round = {"images_per_cpu_s": found["images_per_cpu_s"]} if "images_per_cpu_s" in found else {}
        return found["images_per_s"]

    def close(self):
        self.kill()
        try:
            self.process.wait(END_LIMIT)
            self.process.stdin.close()
        # A program that hangs in a driver cannot be killed; its output is lost.
        except (subprocess.TimeoutExpired, BrokenPipeError):
            pass
        self.errors.close()


def views_pipeline(views, simclr):
    more = "color_jitter(0.8, 0.8, 0.8, 0.2, p=0.8) random_grayscale(0.2) gaussian_blur(23, sigma=0.1:2, p=0.5)" if simclr else ""
    steps = [(copies, f"random_resized_crop({side}, scale={low}:{high}) hflip {more}".rstrip()) for copies, side, low, high in views]
    return " ".join(f"view v{i}({copies}) {{ {step} }}" for i, (copies, step) in enumerate(steps))


class Loaderbench:
    """loaderd, with a new private daemon for each measurement."""

    def __init__(self, loader, config, cpus):
        self.cpus, self.neighbour = cpus, loader.neighbour
        self.properties, self.by_round = {}, {}
        more, self.values = ("", "") if "views" in config else VALUES.get(config["form"], ("", ""))
        pipeline = views_pipeline(config["views"], config["simclr"]) if "views" in config else f"random_resized_crop({config['side']}) hflip {more}".rstrip()
        self.config = dict(config, pipeline=pipeline, values=self.values)
        self.command = [
            config["build"] / "bench/loaderbench", "--json", "-", "--threads", str(config["workers"]),
            "--batch", str(config["batch"]), "--daemon", config["build"] / "loaderd/loaderd",
            "--pipeline", self.config["pipeline"], config["data"],
        ]  # fmt: skip
        if self.values:
            self.command += ["--values", self.values]
        if loader.isa:
            self.command += ["--isa", loader.isa]

    def wait_started(self):
        """Checks a batch, in rows with structured samples."""
        if not self.values:
            return
        config = json.dumps({key: value for key, value in self.config.items() if key != "build"})
        done = subprocess.run(
            [environment_python("torch"), "-W", "ignore", HERE / "feedcheck.py", config],
            capture_output=True,
            text=True,
            env=client_environment(self.config["build"]),
        )
        if done.returncode:
            raise Failure((done.stderr.strip() or "feedcheck.py failed").splitlines()[-1])

    def measure(self, warmup, seconds):
        with Neighbour(self.cpus[0], warmup, seconds) if self.neighbour else NoNeighbour() as neighbour:
            found = subprocess.run(
                [*self.command, "--warmup", str(warmup), "--seconds", str(seconds)],
                capture_output=True,
                text=True,
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, self.cpus),
            )
        if not found.stdout:
            raise Failure(found.stderr.strip() or "loaderbench failed")
        row = json.loads(found.stdout)["rows"][0]
        if "error" in row:
            raise Failure(row["error"])
        self.properties = {
            "settings": f"private daemon, {row['threads']} threads, {row['isa']} kernels; what each does with time is in detail",
            "detail": row,
        }
        self.by_round = {"images_per_cpu_s": 1e6 / (row["cpu_us"] + row["client_cpu_us"])}
        if self.neighbour:
            self.by_round["neighbour_cpus"] = neighbour.cpus_taken
        return row["images_per_s"]

    def pause(self):
        pass

    def close(self):
        pass


class NoNeighbour:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Neighbour:
    """A busy loop on one CPU; cpus_taken is its share of that CPU within the window."""

    def __init__(self, cpu, warmup, seconds):
        self.cpu, self.warmup, self.seconds, self.cpus_taken = cpu, warmup, seconds, None

    def __enter__(self):
        self.process = subprocess.Popen(
            ["sh", "-c", "while :; do :; done"], preexec_fn=lambda: os.sched_setaffinity(0, {self.cpu})
        )
        # Read the CPU time twice within the window, so that the start of the measured program does not count.
        self.first = threading.Timer(self.warmup + 0.2 * self.seconds, self.begin)
        self.second = threading.Timer(self.warmup + 0.8 * self.seconds, self.end)
        self.first.start()
        self.second.start()
        return self

    def cpu_time(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def begin(self):
        self.start = (time.monotonic(), self.cpu_time())

    def end(self):
        self.cpus_taken = (self.cpu_time() - self.start[1]) / (time.monotonic() - self.start[0])

    def __exit__(self, *_):
        for timer in (self.first, self.second):
            timer.cancel()
            timer.join()
        self.process.kill()
        self.process.wait()


class Loader:
    """program: the peer program, run in environment; loaderd if None. views: the rows with views in which it takes part. more: arguments
    in addition to the row's settings."""

    def __init__(self, name, forms, environment=None, program=None, isa=None, neighbour=False, views=(), **more):
        self.name, self.forms, self.views = name, forms, views
        self.environment, self.program = environment, program
        self.isa, self.neighbour, self.more = isa, neighbour, more

    def is_peer(self):
        return self.program is not None

    def title(self, form):
        return self.name.split(",")[0] if form == "raw" and self.program == "torchdata.py" else self.name

    def start(self, config, cpus):
        config = dict(config, **self.more)
        if not self.program and config["form"] in ORDERED:
            return self.start_client(config, cpus)
        if not self.program:
            return Loaderbench(self, config, cpus)
        config = json.dumps({key: value for key, value in config.items() if key != "build"})
        return Program([environment_python(self.environment), "-W", "ignore", HERE / self.program, config], cpus)

    def start_client(self, config, cpus):
        """Starts loaderd with its Python client, which has the orders that loaderbench lacks."""
        environment = client_environment(config["build"])
        if self.isa:
            environment["LOADERD_ISA"] = self.isa
        words = json.dumps({key: value for key, value in config.items() if key != "build"})
        return Program([environment_python("torch"), "-W", "ignore", HERE / "feeddata.py", words], cpus, environment=environment)


LOADERS = {
    "loaderd": Loader("loaderd", FEEDS + STRUCTURED + ORDERED, views=VIEWS),
    "loaderd-avx2": Loader("loaderd, AVX2", FEEDS + STRUCTURED + ORDERED, views=VIEWS, isa="avx2"),
    "tf.data": Loader("tf.data", FEEDS + STRUCTURED + ORDERED, "tensorflow", "tfdata.py", views=CROPS, variant="plain"),
    "tf.data-antialias": Loader("tf.data, antialiased", FEEDS + STRUCTURED + ORDERED, "tensorflow", "tfdata.py", views=CROPS, variant="antialias"),
    "ffcv": Loader("FFCV", FEEDS, "ffcv", "ffcvdata.py"),
    "dali": Loader("DALI", JPEG + STRUCTURED, "dali", "dalidata.py", views=CROPS),
    "torch": Loader("PyTorch, decode_jpeg", FEEDS + STRUCTURED + BUCKETS, "torch", "torchdata.py", views=VIEWS, variant="tensor"),
    "torch-codec": Loader("PyTorch, torchcodec", JPEG + STRUCTURED + BUCKETS, "torch", "torchdata.py", views=CROPS, variant="torchcodec"),
    "torch-pillow": Loader("PyTorch, Pillow", JPEG + STRUCTURED + BUCKETS, "torch", "torchdata.py", views=VIEWS, variant="pillow"),
    "spdl": Loader("SPDL", JPEG, "spdl", "spdldata.py"),
    "webdataset": Loader("WebDataset", MIX, "webdataset", "webdatasetdata.py"),
    "streaming": Loader("Mosaic Streaming", MIX, "streaming", "streamingdata.py"),
}

# loaderd with settings that must not change its rate. The first is the baseline.
STEADINESS = {
    "usual": Loader("2 threads, batch 256", FEEDS),
    **{f"batch-{n}": Loader(f"batch {n}", FEEDS, batch=n) for n in (32, 64, 128, 512, 1024)},
    "threads-1": Loader("1 thread", FEEDS, workers=1),
    **{f"threads-{n}": Loader(f"{n} threads", FEEDS, workers=n) for n in (4, 8)},
    "neighbour": Loader("busy neighbour on one CPU", FEEDS, neighbour=True),
}
