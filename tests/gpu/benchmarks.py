"""The parts that measure: networks against PyTorch, layers, kernels, CIFAR-10, and the loader that feeds a network."""

import json
import os
import pathlib
import statistics
import subprocess

from budget import Budget
from contestants import Failure, Program
from setup import Skipped

PEERS = pathlib.Path(__file__).resolve().parent.parent.parent / "bench/peers"
START_LIMIT = 60  # seconds for a program that has nothing to compile
# PyTorch: of which networks, by their place, what is compiled ahead, in order of worth; both have CUDA graphs.
AHEAD = [(0, "max-autotune"), (0, "reduce-overhead"), (2, "max-autotune")]
MEASURING = 25  # seconds that a network takes once its programs are ready
MEMORY_SHARE = 0.6  # of the GPU, for programs that compile while tests run
BYTES_PER_PIXEL = {"resnet50": 2000, "resnet18": 700}  # that PyTorch takes for an image in training, with room to spare


def cpus():
    return os.sched_getaffinity(0)


# ---- PyTorch ahead of time ----


def torch_version(setup):
    """None where PyTorch cannot be imported."""
    ask = "import torch; print(torch.__version__, torch.cuda.is_available())"
    done = subprocess.run([setup.python, "-W", "ignore", "-c", ask], capture_output=True, text=True, timeout=120)
    words = done.stdout.split()
    return words[0] if not done.returncode and len(words) == 2 and (words[1] == "True" or setup.stand_in) else None


def torch_command(setup, program, **config):
    config["device"] = "cpu" if setup.stand_in else "cuda"
    return [setup.python, "-W", "ignore", PEERS / program, json.dumps(config)]


def resnet_command(setup, network, precision, mode):
    net, side, batch = network
    return torch_command(setup, "torchresnet.py", net=net, side=side, batch=batch, precision=precision, mode=mode)


def start_ahead(setup, limit):
    """Starts PyTorch's programs whose compiling takes long, as many as fit the GPU's memory; they compile while tests run."""
    if not setup.machine.get("PyTorch") or setup.stand_in:
        return
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=str(setup.work / "inductor"))
    room = MEMORY_SHARE * setup.machine["memory GiB"] * 2**30
    for place, mode in AHEAD:
        network = setup.size("networks")[place]
        net, side, batch = network
        need = batch * side * side * BYTES_PER_PIXEL[net]
        if need <= room:
            room -= need
            program = Program(resnet_command(setup, network, "fp16", mode), cpus(), START_LIMIT, environment)
            setup.background[network, "fp16", mode] = program


def hold(setup, held):
    """Stops what still compiles while others are measured, or lets it go on."""
    for program in setup.background.values():
        if program.process.poll() is None:
            (program.pause if held else program.resume)()


def close_all(setup):
    for program in setup.background.values():
        program.close()
    setup.background.clear()


# ---- networks in turn ----


def contestants_of(setup, network, precision):
    """(name, is ours, a Program that is under way) in turn: ours, and PyTorch's; a failure to start is given in the program's place."""
    autotune = [] if setup.device == "cpu" else ["--autotune"]
    found = [("loaderd", True, Program(setup.bench_command(network, "--serve", "-p", precision, *autotune), cpus(), START_LIMIT, setup.environment))]
    for key in [key for key in setup.background if key[:2] == (network, precision)]:
        found.append((f"PyTorch, {key[2]}", False, setup.background.pop(key)))
    if setup.machine.get("PyTorch"):
        found.append(("PyTorch, eager", False, Program(resnet_command(setup, network, precision, "eager"), cpus(), START_LIMIT)))
    return found


def ready(contestants, limit, patience):
    """Those that have made their first steps, stopped. patience: seconds at most for those that were started ahead."""
    compiled = {f"PyTorch, {mode}" for _, mode in AHEAD}
    running, lost = [], []
    end = Budget(patience, limit)
    # The slow ones last, the slowest at the very end: all compile meanwhile.
    for name, ours, program in sorted(contestants, key=lambda each: (each[0] in compiled, each[0] == "PyTorch, max-autotune")):
        program.limit = max(1, end.left() if name in compiled else min(limit.left(), START_LIMIT))
        try:
            program.started()
            program.pause()
            running.append((name, ours, program))
        except Failure as failure:
            waited = f"not ready after {program.limit:.0f} s more; " if name in compiled and end.left() <= 0 else ""
            lost.append((name, waited + str(failure)))
            program.close()
        program.limit = START_LIMIT
    return running, lost


def in_turn(setup, running, limit):
    """images/s of every round, by name; who begins changes."""
    rounds = {name: [] for name, _, _ in running}
    lost = []
    for turn in range(setup.size("rounds")):
        for name, _, program in running[turn % len(running) :] + running[: turn % len(running)]:
            if any(name == other for other, _ in lost):
                continue
            program.limit = max(1, min(START_LIMIT, limit.left()))
            try:
                rounds[name].append(program.measure(setup.size("warmup"), setup.size("seconds")))
                program.pause()
            except Failure as failure:
                lost.append((name, str(failure)))
    return rounds, lost


def ratios(rounds, ours):
    """Of every other to ours, medians of the rounds' ratios."""
    return {
        name: statistics.median(a / b for a, b in zip(rounds[ours], speeds))
        for name, speeds in rounds.items()
        if name != ours and speeds and len(speeds) == len(rounds[ours])
    }


def bandwidth(setup):
    """Bytes per second of a measured copy on the device, None before there is one."""
    copied = setup.machine.get("copy GB/s")
    return copied and 1e9 * copied


def derived(setup, facts, speed):
    """ms per step, MFU %, GB per step, % of a copy's bandwidth, and % of the roofline."""
    seconds = facts["batch"] / speed
    mfu = 100 * facts["flops"] / seconds / facts["peak_flops"] if facts["peak_flops"] else None
    moved = facts["bytes_forward"] + facts["bytes_backward"]
    roofline = 100 * facts["roofline_seconds"] / seconds if facts["roofline_seconds"] else None
    rate = bandwidth(setup)
    return [1e3 * seconds, mfu, moved / 1e9 if moved else None, 100 * moved / seconds / rate if moved and rate else None, roofline]


DERIVED = ["ms/step", "MFU %", "GB/step", "% of copy's GB/s", "% of roofline"]


def roofline_note(setup):
    ceilings = setup.ceilings()
    if not ceilings:
        return "MFU and roofline: trainer/devices has no file of this GPU."
    return (
        f"Ceilings of trainer/devices: {ceilings['bytes_per_second'] / 1e12:.2f} TB/s, {ceilings['flops_per_second']['fp16'] / 1e12:.0f} TFLOP/s in 16 bits "
        f"({ceilings['source']}). Roofline: every layer's pass as fast as its bytes or its arithmetic let it. GB: the least that the layers as planned move."
    )


def networks(setup, part, limit):
    """Training steps on random batches: ours in turn with PyTorch."""
    rows = []
    all_networks = [(network, setup.precisions()[0]) for network in setup.size("networks")]
    if "bf16" in setup.precisions():
        all_networks.insert(1, (setup.size("networks")[0], "bf16"))
    for place, (network, precision) in enumerate(all_networks):
        contestants = contestants_of(setup, network, precision)
        try:
            patience = limit.left() - MEASURING * (len(all_networks) - place)
            running, lost = ready(contestants, limit, max(5, patience))
            hold(setup, True)
            rounds, failed = in_turn(setup, running, limit)
        finally:
            hold(setup, False)
            for _, _, program in contestants:
                program.close()
        against = ratios(rounds, "loaderd") if rounds.get("loaderd") else {}
        for name, ours, program in running:
            if rounds[name]:
                speed = statistics.median(rounds[name])
                figures = derived(setup, program.facts, speed) if ours else [1e3 * network[2] / speed, None, None, None, None]
                rows.append([network[0], network[1], precision, name, speed, min(rounds[name]), max(rounds[name]), against.get(name), *figures])
            if not ours:
                part.note(f"{network[0]}, {network[1]}: {program.facts.get('settings', name)}")
        for name, words in lost + failed:
            rows.append([network[0], network[1], precision, name, None, None, None, None, None, None, None, None, None])
            part.test(f"{network[0]}, {network[1]}, {precision}, {name}", "failed" if name == "loaderd" else "skipped", detail=words)
        note_figures(part, network, precision, rounds, against)
        part.table(
            f"Training, batch {network[2]}, images/s",
            ["net", "px", "precision", "", "median", "least", "most", "loaderd against it", *DERIVED],
            rows,
            ["Medians of rounds in turn. loaderd copies every batch from host memory, normalises it and keeps averaged weights; PyTorch's batch stays on the "
             "device. " + roofline_note(setup)],
        )  # fmt: skip


def note_figures(part, network, precision, rounds, against):
    if rounds.get("loaderd"):
        part.figure(f"{network[0]}_{network[1]}_{precision}", statistics.median(rounds["loaderd"]))
    if against:
        # The fastest peer is what counts.
        part.figure(f"{network[0]}_{network[1]}_{precision}_ratio", min(against.values()))


# ---- variants and layers ----


def variants(setup, part, limit):
    """What fusion, autotuning and replay bring; then time and bytes layer by layer."""
    network, steps = setup.size("layers"), setup.size("steps")
    cuda = setup.device != "cpu"
    choices = [("autotuned", setup.precisions()[0], ["--autotune"] if cuda else [])]
    if cuda:
        choices += [
            ("heuristics' plans", "fp16", []), ("fusion b", "fp16", ["--autotune", "--fusion", "b"]), ("fusion none", "fp16", ["--autotune", "--fusion", "none"]),
            ("eager", "fp16", ["--autotune", "--eager"]), ("deterministic", "fp16", ["--autotune", "--deterministic"]),
            ("autotuned", "bf16", ["--autotune"]), ("tf32", "fp32", ["--autotune", "--tf32"]),
        ]  # fmt: skip
    rows = []
    for name, precision, options in choices:
        try:
            found = setup.bench(limit, network, "-n", steps, "-p", precision, *options)
        except Failure as failure:
            part.test(f"{name}, {precision}", "failed", detail=str(failure))
            continue
        rows.append([name, precision, found["images_per_s"], found["images_per_s_best"], *derived(setup, found, found["images_per_s"]),
                     found["arena_bytes"] / 2**30])  # fmt: skip
        part.table(
            f"{network[0]} at {network[1]}, batch {network[2]}: variants",
            ["", "precision", "images/s, median", "best", *DERIVED, "GiB"], rows,
        )  # fmt: skip
    layers(setup, part, limit, network, steps)


def layers(setup, part, limit, network, steps):
    autotune = [] if setup.device == "cpu" else ["--autotune"]
    found = setup.bench(limit, network, "-n", steps, "-p", setup.precisions()[0], "--layers", *autotune)
    whole = sum(layer["forward_ms"] + layer["backward_ms"] for layer in found["layers"]) or 1
    rate = bandwidth(setup)

    def row(name, kind, shape, engine, entries):
        forward, backward = (sum(layer[key] for layer in entries) for key in ("forward_ms", "backward_ms"))
        flops = sum(layer["flops_forward"] + layer["flops_backward"] for layer in entries)
        moved = sum(layer["bytes_forward"] + layer["bytes_backward"] for layer in entries)
        seconds = (forward + backward) / 1e3
        return [name, kind, shape, forward, backward, 100 * (forward + backward) / whole, flops / seconds / 1e12 if seconds else None,
                100 * moved / seconds / rate if moved and seconds and rate else None, engine]  # fmt: skip

    kinds = {}
    for layer in found["layers"]:
        kinds.setdefault(layer["kind"], []).append(layer)
    rows = [row("all of a kind", kind, f"{len(entries)} layers", "", entries) for kind, entries in kinds.items()]
    rows.sort(key=lambda row: -row[3] - row[4])
    slowest = sorted(found["layers"], key=lambda layer: -layer["forward_ms"] - layer["backward_ms"])
    rows += [row(layer["name"], layer["kind"], "x".join(map(str, layer["shape"])), layer["engine"], [layer]) for layer in slowest[:20]]
    part.table(
        f"{network[0]} at {network[1]}, batch {network[2]}, {found['precision']}: layers",
        ["layer", "kind", "result", "forward ms", "backward ms", "% of all", "TFLOP/s", "% of copy's GB/s", "engine"], rows,
        ["Every operation timed by itself, which takes longer than the step as replayed. All kinds, then the 20 slowest layers; all are in report.json."],
    )  # fmt: skip
    part.facts["layers"] = found["layers"]
    part.write()


# ---- CIFAR-10 ----


def cifar(setup, part, limit):
    """Our recipe, then airbench94 in PyTorch, on the same files."""
    tars = {name: setup.datum(f"cifar10-{name}.tar") for name in ("train", "test")}
    packimg = setup.program("tools/packimg/packimg")

    def pack(name, *options):
        return setup.once(f"cifar10-{name}.pimg", lambda path: setup.output([packimg, "convert", tars[name], "-o", path, "--quiet", *options], limit))

    data = {"train": pack("train", "--shuffle", "1"), "test": pack("test")}
    rows = []
    columns = ["", "epochs", "accuracy %", "training, s", "evaluations, s", "images/s in training", "s to 94 %"]
    title = "CIFAR-10 as JPEG files"
    note = ["JPEG costs about a point against the original arrays. Seconds to 94 %: training up to the first evaluation that reached it."]

    def add(row):
        rows.append(row)
        part.table(title, columns, rows, note)

    def ours(epochs):
        found = cifar_ours(setup, limit, data, epochs)
        add([f"loaderd, cifar10.ini, {found['precision']}", epochs, 100 * found["top1"], found["train_seconds"], found["eval_seconds"],
             found["images_per_second"], found["seconds_to_94"]])  # fmt: skip
        return found["top1"]

    def peers(mode):
        command = torch_command(setup, "torchcifar.py", train=str(tars["train"]), test=str(tars["test"]), mode=mode)
        program = Program(command, cpus(), max(1, limit.left()))
        try:
            program.begun()
            program.ask(0, 0)
            found = program.read(max(1, limit.left()))
            add([f"PyTorch, airbench94, {mode}", 9.9, 100 * found["accuracy"], found["seconds"], None, found["images_per_s"],
                 found["seconds"] if found["accuracy"] >= 0.94 else None])  # fmt: skip
            part.note(program.facts["settings"])
        except Failure as failure:
            part.test(f"airbench94, {mode}", "skipped", detail=str(failure))
        finally:
            program.close()

    few, many = setup.size("cifar_epochs")
    top1 = ours(few)
    with_torch = setup.machine.get("PyTorch") and not setup.stand_in
    if with_torch:
        peers("eager")
    if top1 < 0.94:
        ours(many)
    if with_torch:
        peers("max-autotune")
    else:
        part.note("airbench94 was left out: " + ("not on a stand-in" if setup.stand_in else "PyTorch is not installed"))


def trainer(setup, limit, output, recipe, *settings):
    """Runs the trainer; its summary and the lines of its log."""
    setup.output(
        [setup.program("trainer/trainer"), recipe, f"--output={output}", *settings], limit,
        dict(setup.environment, LOADERD=str(setup.program("loaderd/loaderd"))),
    )  # fmt: skip
    lines = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return json.loads((output / "summary.json").read_text()), lines


def recipes():
    return PEERS.parent.parent / "trainer/recipes"


def cifar_ours(setup, limit, data, epochs):
    summary, lines = trainer(
        setup, limit, setup.work / f"cifar-{epochs}", recipes() / "cifar10.ini", f"data.train={data['train']}", f"data.val={data['test']}",
        f"train.device={setup.device}", f"train.precision={setup.precisions()[0]}", f"train.epochs={epochs}", "checkpoint.every=0",
        "train.autotune=yes", f"model.width={setup.size('width')}",
        f"train.eval_every={0 if epochs < 1 else 2}", f"data.threads={len(cpus())}",
    )  # fmt: skip
    evaluations = [line for line in lines if line["event"] == "eval"]
    reached = [line["step"] for line in evaluations if line["top1"] >= 0.94]
    # The epoch's line before the evaluation has the seconds of training up to it.
    seconds = {line["step"]: line["train_seconds"] for line in lines if line["event"] == "epoch"}
    return {
        **summary, "precision": lines[0]["precision"], "eval_seconds": sum(line["seconds"] for line in evaluations),
        "seconds_to_94": seconds.get(reached[0]) if reached else None,
    }  # fmt: skip


# ---- the loader ----


def copies_of(setup, limit):
    """The carried photographs so many times that an epoch is not over at once."""
    images = setup.datum("imagenet.pimg")
    merge = [setup.program("tools/packimg/packimg"), "merge", *[images] * setup.size("image_copies"), "--shuffle=1", "--quiet", "-o"]
    return setup.once("photographs.pimg", lambda path: setup.output([*merge, path], limit))


def feeding(setup, part, limit):
    """A network on real JPEG images, decoded meanwhile: does it wait for data? And the same network on one random batch."""
    data = copies_of(setup, limit)
    network, precision = setup.size("fed"), setup.precisions()[0]
    net, side, batch = network
    samples = json.loads(setup.output([setup.program("tools/packimg/packimg"), "info", "--json", data], limit))["samples"]
    epochs = setup.size("fed_steps") / (samples // batch)
    summary, lines = trainer(
        setup, limit, setup.work / "fed", recipes() / "imagenet.ini", f"data.train={data}", "data.val=", "data.val_pipeline=", f"model.name={net}",
        f"data.pipeline=random_resized_crop({side}, scale=0.25:1) hflip(0.5)", f"data.batch_size={batch}", f"data.threads={len(cpus())}",
        f"train.device={setup.device}", f"train.precision={precision}", f"train.epochs={epochs!r}", "schedule.warmup=0", "optim.lr=0.1",
        f"model.width={setup.size('width')}",
        "train.ema=0", "checkpoint.every=0", "log.interval=1", "train.autotune=yes",
    )  # fmt: skip
    # The first tenth fills pipelines and records graphs.
    steps = [line for line in lines if line["event"] == "step"]
    later = steps[len(steps) // 10 :]
    seconds = [1 / line["images_per_second"] for line in later]
    wait = sum(line["data_wait"] * each for line, each in zip(later, seconds)) / sum(seconds)
    rate = batch * (later[-1]["step"] - later[0]["step"]) / (later[-1]["time"] - later[0]["time"])
    alone = setup.bench(limit, network, "-n", setup.size("steps"), "-p", precision)["images_per_s"]
    part.test("the ring is registered: batches are copied from where they lie", "passed" if lines[0]["batches"] == "direct" else "failed")
    part.figure("data_wait_percent", 100 * wait)
    part.table(
        f"{net} at {side}, {precision}, batch {batch}, fed from JPEG images of short side 256",
        ["images/s", "waiting for data, %", "of all steps, %", "images/s on random batches", "fed against random, %"],
        [[rate, 100 * wait, 100 * summary["data_wait"], alone, 100 * rate / alone]],
        [f"{len(steps)} steps, the first tenth left out; {len(cpus())} threads decode. Batches reach the device {lines[0]['batches']}."],
    )


def loader(setup, part, limit):
    """How the loader scales with its threads on this machine, without a network."""
    data = copies_of(setup, limit)
    threads = [count for count in setup.size("threads") if count <= len(cpus())]
    text = setup.output(
        [setup.program("bench/loaderbench"), "--daemon", setup.program("loaderd/loaderd"), "--json", "-", "--threads", ",".join(map(str, threads)),
         "--rounds", 1 if setup.stand_in else 2, "--warmup", "0.5", "--seconds", setup.size("seconds"), data, "random_resized_crop(224) hflip"], limit,
    )  # fmt: skip
    found = [row for row in json.loads(text)["rows"] if "error" not in row]
    rows = [[row["threads"], row["images_per_s"], row["images_per_s"] / found[0]["images_per_s"] / row["threads"] * found[0]["threads"] * 100,
             row["cpu_us"], row["limit"]] for row in found]  # fmt: skip
    part.table("random_resized_crop(224) hflip of short side 256, batch 256", ["threads", "images/s", "% of linear", "CPU us/image", "limit"], rows)
    part.figure("loader_images_per_s", max(row["images_per_s"] for row in found))


# ---- kernels ----


def kernels(setup, part, limit):
    """Our own kernels against a copy on the device, each beside its own."""
    if setup.stand_in:
        raise Skipped("it needs a GPU")
    found = json.loads(setup.output([setup.program("bench/kernel_bench"), "--json"], limit))
    setup.machine["copy GB/s"] = round(found["copy_gb_per_s"])
    rows = [[row["kernel"], row["case"], row["us"], row["us_least"], row["us_most"], row["gb_per_s"], 100 * row["gb_per_s"] / row["copy_gb_per_s"]]
            for row in found["rows"]]  # fmt: skip
    part.table(f"Kernels in {found['element']}; a copy moves {found['copy_gb_per_s']:,.0f} GB/s, read and written",
               ["kernel", "case", "us, median", "least", "most", "GB/s", "% of copy"], rows)  # fmt: skip
