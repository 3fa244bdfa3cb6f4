"""The parts that feed a network from files: ImageNet's photographs and CIFAR-10, compared with PyTorch on the same files."""

import json

import ahead
from loaders import Failure, Program

RECIPES = ahead.PEERS.parent.parent / "trainer/recipes"
COMPILED_LATER = 15  # maximum seconds to wait for a compiled program after eager mode is ready
COMPILING = 40  # seconds that must be left to start compiling airbench94
SCALE = (0.25, 1)  # range of the crop's fraction of the image area, as in trainer/recipes/imagenet.ini


def trainer(setup, limit, output, recipe, *settings):
    """Runs the trainer. Returns its summary and the lines of its log."""
    setup.output(
        [setup.program("trainer/trainer"), RECIPES / recipe, f"--output={output}", *settings, f"train.device={setup.device}",
         f"train.precision={setup.precisions()[0]}", f"data.threads={len(ahead.cpus())}", "checkpoint.every=0"], limit,
        dict(setup.environment, LOADERD=str(setup.program("loaderd/loaderd"))),
    )  # fmt: skip
    lines = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return json.loads((output / "summary.json").read_text()), lines


# ---- photographs ----


def copies_of(setup, limit):
    """Returns a packed file that contains the photographs several times, so that an epoch lasts long enough to measure."""
    images = setup.datum("imagenet.pimg")
    merge = [setup.program("tools/packimg/packimg"), "merge", *[images] * setup.size("image_copies"), "--shuffle=1", "--quiet", "-o"]
    return setup.once("photographs.pimg", lambda path: setup.output([*merge, path], limit))


def files_of(setup, limit):
    """Returns a folder with the photographs as files, for PyTorch."""
    extract = [setup.program("tools/packimg/packimg"), "extract", setup.datum("imagenet.pimg"), "-o"]
    return setup.once("photographs", lambda path: setup.output([*extract, path], limit))


def start_pytorch(setup, part, limit):
    """Starts PyTorch on the same files. Returns (mode, program), ready and stopped; compiled mode if it is ready soon after eager mode. None without PyTorch."""
    if not setup.torch:
        return None
    network, precision = setup.size("fed"), setup.precisions()[0]
    config = {"data": str(files_of(setup, limit)), "workers": len(ahead.cpus()), "steps": setup.size("fed_steps"), "scale": SCALE}
    # The part "networks" has already compiled it, so it is in Inductor's cache.
    modes = ["eager"] if setup.fake_gpu else ["eager", "max-autotune"]
    started = {mode: ahead.resnet_program(setup, network, precision, mode, **config) for mode in modes}
    best = None
    for mode, program in started.items():
        program.limit = max(1, min(limit.left() / 2, ahead.START_LIMIT if mode == "eager" else COMPILED_LATER))
        try:
            program.wait_started()
            program.pause()
        except Failure as failure:
            part.test(f"PyTorch, {mode}, fed", "skipped", detail=str(failure))
            program.close()
            continue
        if best:
            best[1].close()
        best = mode, program
    return best


def feed_pytorch(part, limit, mode, program):
    """Measures PyTorch. Returns [name, images/s, % of the time waiting for data]."""
    program.limit = max(1, limit.left())
    program.resume()
    program.ask(0, limit.left() / 2)
    found = program.read(program.limit)
    part.note(f"{program.properties['settings']}; {found['steps']} steps")
    return [f"PyTorch, {mode}", found["images_per_s"], 100 * found["data_wait"]]


def feed_ours(setup, part, limit, data):
    net, side, batch = setup.size("fed")
    samples = json.loads(setup.output([setup.program("tools/packimg/packimg"), "info", "--json", data], limit))["samples"]
    _, lines = trainer(
        setup, limit, setup.work / "fed", "imagenet.ini", f"data.train={data}", "data.val=", "data.val_pipeline=", f"model.name={net}",
        f"data.pipeline=random_resized_crop({side}, scale={SCALE[0]}:{SCALE[1]}) hflip(0.5)", f"data.batch_size={batch}",
        f"model.width={setup.size('width')}", f"train.epochs={setup.size('fed_steps') / (samples // batch)!r}",
        "schedule.warmup=0", "optim.lr=0.1", "train.ema=0", "log.interval=1",
    )  # fmt: skip
    # Skip the first tenth, in which pipelines fill and graphs are captured.
    steps = [line for line in lines if line["event"] == "step"]
    later = steps[len(steps) // 10 :]
    seconds = [1 / line["images_per_second"] for line in later]
    wait = sum(line["data_wait"] * each for line, each in zip(later, seconds)) / sum(seconds)
    rate = batch * (later[-1]["step"] - later[0]["step"]) / (later[-1]["time"] - later[0]["time"])
    part.test("the ring is registered: batches are copied from where they lie", "passed" if lines[0]["batches"] == "direct" else "failed",
              detail=f"batches reach the device {lines[0]['batches']}")  # fmt: skip
    part.figure("data_wait_percent", 100 * wait)
    part.note(f"{len(steps)} steps, the first tenth left out, on each side; {len(ahead.cpus())} threads decode here, as many processes there")
    return ["loaderd", rate, 100 * wait]


def feeding(setup, part, limit):
    """Measures how long a network waits for JPEG images that are decoded while it trains. For comparison: random batches, and PyTorch on the same files."""
    data = copies_of(setup, limit)
    net, side, batch = network = setup.size("fed")
    precision = setup.precisions()[0]
    rows = []

    def add(*row):
        rows.append(list(row))
        part.table(f"{net} at {side}, {precision}, batch {batch}, fed from JPEG images of short side 256",
                   ["", "images/s", "waiting for data, %", "of random batches' images/s, %"], rows)  # fmt: skip

    ours = feed_ours(setup, part, limit, data)
    add(*ours, None)
    alone = setup.bench(limit, network, "-n", setup.size("steps"), "-p", precision)["images_per_s"]
    rows[0][3] = 100 * ours[1] / alone
    add("loaderd, random batches", alone, None, None)
    peer = start_pytorch(setup, part, limit)
    if not peer:
        return
    try:
        add(*feed_pytorch(part, limit, *peer), None)
        part.figure("fed_ratio", ours[1] / rows[-1][1])
    except Failure as failure:
        part.test(f"PyTorch, {peer[0]}, fed", "skipped", detail=str(failure))
    finally:
        peer[1].close()


# ---- CIFAR-10 ----


class Cifar:
    """The runs of the part cifar; each adds a row to the table."""

    columns = ["", "epochs", "accuracy %", "training, s", "evaluations, s", "images/s in training", "s to 94 %"]
    notes = ["The files are JPEG of quality 75 with halved chroma, which costs accuracy against the original arrays. Seconds to 94 %: training up to the first "
             "evaluation that reached it."]  # fmt: skip

    def __init__(self, setup, part, limit):
        self.setup, self.part, self.limit = setup, part, limit
        self.tars = {name: setup.datum(f"cifar10-{name}.tar") for name in ("train", "test")}
        self.rows = []

    def add(self, row):
        self.rows.append(row)
        self.part.table("CIFAR-10 as JPEG files", self.columns, self.rows, self.notes)

    def pack(self, name, *options):
        convert = [self.setup.program("tools/packimg/packimg"), "convert", self.tars[name], "--quiet", *options, "-o"]
        return self.setup.once(f"cifar10-{name}.pimg", lambda path: self.setup.output([*convert, path], self.limit))

    def ours(self, epochs, width):
        """Runs trainer/recipes/cifar10.ini. Returns the accuracy."""
        summary, lines = trainer(
            self.setup, self.limit, self.setup.work / f"cifar-{epochs}", "cifar10.ini", f"data.train={self.pack('train', '--shuffle', '1')}",
            f"data.val={self.pack('test')}", f"train.epochs={epochs}", f"train.eval_every={0 if epochs < 1 else 2}", f"model.width={width}",
        )  # fmt: skip
        evaluations = [line for line in lines if line["event"] == "eval"]
        reached = [line["step"] for line in evaluations if line["top1"] >= 0.94]
        # The log line of the epoch before the evaluation has the seconds of training so far.
        seconds = {line["step"]: line["train_seconds"] for line in lines if line["event"] == "epoch"}
        self.add([f"loaderd, cifar10.ini, width {width:g}, {lines[0]['precision']}", epochs, 100 * summary["top1"], summary["train_seconds"],
                  sum(line["seconds"] for line in evaluations), summary["images_per_second"], seconds.get(reached[0]) if reached else None])  # fmt: skip
        self.part.figure(f"cifar10_{epochs}_epochs_percent", 100 * summary["top1"])
        return summary["top1"]

    def pytorch(self, mode):
        """Runs airbench94 in PyTorch."""
        command = ahead.torch_command(self.setup, "torchcifar.py", train=str(self.tars["train"]), test=str(self.tars["test"]), mode=mode)
        program = Program(command, ahead.cpus(), max(1, self.limit.left()))
        try:
            program.wait_ready()
            program.ask(0, 0)
            found = program.read(max(1, self.limit.left()))
            self.add([f"PyTorch, airbench94, {mode}", 9.9, 100 * found["accuracy"], found["seconds"], None, found["images_per_s"],
                      found["seconds"] if found["accuracy"] >= 0.94 else None])  # fmt: skip
            self.part.note(program.properties["settings"])
        except Failure as failure:
            self.part.test(f"airbench94, {mode}", "skipped", detail=str(failure))
        finally:
            program.close()


def cifar(setup, part, limit):
    """Runs our recipe, then airbench94 in PyTorch, on the same files."""
    runs = Cifar(setup, part, limit)
    few, many = setup.size("cifar_runs")
    if setup.tuning:
        part.note(f"speednet: {setup.tuning.wait((setup.size('cifar'), setup.precisions()[0]), 0)}")
    with_torch = setup.torch and not setup.fake_gpu
    top1 = runs.ours(*few)
    if with_torch:
        runs.pytorch("eager")
    if top1 < 0.94:
        runs.ours(*many)
    if with_torch and limit.left() > COMPILING:
        runs.pytorch("max-autotune")
    elif with_torch:
        part.test("airbench94, max-autotune", "skipped", detail=f"{limit.left():.0f} s are too few to compile it")
    else:
        part.note("airbench94 was left out: " + ("not on a fake GPU" if setup.fake_gpu else "there is no PyTorch"))
