"""The parts that measure without PyTorch: our kernels, variants of a network, its layers, and the loader."""

import json
import re
import statistics

import ahead
from loaders import Failure
from feeding import copies_of
from networks import DERIVED, bandwidth, derived_figures
from setup import KERNELS, Skipped


# ---- kernels ----

# A line of output of tests/kernels/cuda/cuda_kernels_bench.c.
KERNEL_LINE = re.compile(
    r"(?P<kernel>\S+)  +(?P<case>.+?) +(?P<element>\S+) +(?P<us>[\d.]+) us \((?P<least>[\d.]+) to (?P<most>[\d.]+)\) +"
    r"[\d.]+ MB +(?P<rate>[\d.e-]+) GB/s, +(?P<percent>[\d.]+) % of a copy's (?P<copy>[\d.]+)"
)


def kernels(setup, part, limit):
    """Measures our kernels, each alternating with a copy on the device."""
    if setup.device == "cpu":
        raise Skipped("it needs a GPU")
    text = "".join(setup.output([setup.program(f"tests/kernels/cuda/test_cuda_kernels_{family}"), "--bench"], limit) for family in KERNELS)
    found = [KERNEL_LINE.fullmatch(line) for line in text.splitlines()]
    if not found or not all(found):
        raise Failure(f"no kernel's figures in {text!r}")
    copy = statistics.mean(float(row["copy"]) for row in found)
    setup.machine["copy GB/s"] = round(copy)
    rows = [[row["kernel"], row["case"], *(float(row[name]) for name in ("us", "least", "most", "rate", "percent"))] for row in found]
    part.table(f"Kernels in {found[0]['element']}; a copy moves {copy:,.0f} GB/s, read and written",
               ["kernel", "case", "us, median", "least", "most", "GB/s", "% of copy"], rows)  # fmt: skip


# ---- variants and layers ----


def variants(setup, part, limit):
    """Measures the effect of fusion, autotuning and replay, then time and bytes by layer."""
    network, steps = setup.size("layers"), setup.size("steps")
    tuned, untuned = setup.environment, setup.untuned()
    choices = [("as measured above", setup.precisions()[0], tuned, [])]
    if setup.device == "cuda":
        choices += [
            ("heuristics' plans, fusion c", "fp16", untuned, []), ("heuristics' plans, fusion b", "fp16", untuned, ["--fusion", "b"]),
            ("heuristics' plans, fusion none", "fp16", untuned, ["--fusion", "none"]), ("launched, not replayed", "fp16", tuned, ["--eager"]),
            ("deterministic", "fp16", untuned, ["--deterministic"]), ("as measured above", "bf16", tuned, []), ("tf32", "fp32", untuned, ["--tf32"]),
        ]  # fmt: skip
    rows = []
    for name, precision, environment, options in choices:
        try:
            found = setup.bench(limit, network, "-n", steps, "-p", precision, *options, environment=environment)
        except Failure as failure:
            part.test(f"{name}, {precision}", "failed", detail=str(failure))
            continue
        rows.append([name, precision, found["images_per_s"], found["images_per_s_best"], *derived_figures(setup, found, found["images_per_s"]),
                     found["arena_bytes"] / 2**30, len(found["fallbacks"])])  # fmt: skip
        if len(rows) == 1:
            for line in found["fallbacks"]:
                part.note(f"{precision}: {line}")
        part.table(
            f"{network[0]} at {network[1]}, batch {network[2]}: variants",
            ["", "precision", "images/s, median", "best", *DERIVED, "GiB", "patterns taken apart"], rows,
        )  # fmt: skip
    layers(setup, part, limit, network, steps)


def layers(setup, part, limit, network, steps):
    found = setup.bench(limit, network, "-n", steps, "-p", setup.precisions()[0], "--layers")
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
    part.findings["layers"] = found["layers"]
    part.write()


# ---- the loader ----


def loader(setup, part, limit):
    """Measures the loader with different numbers of threads, without a network."""
    data = copies_of(setup, limit)
    threads = [count for count in setup.size("threads") if count <= len(ahead.cpus())]
    batch = setup.size("fed")[2]
    done = setup.run(
        [setup.program("bench/loaderbench"), "--daemon", setup.program("loaderd/loaderd"), "--json", "-", "--threads", ",".join(map(str, threads)),
         "--batch", batch, "--rounds", 1 if setup.fake_gpu else 2, "--warmup", "0.5", "--seconds", setup.size("seconds"), data,
         "random_resized_crop(224) hflip"], limit,
    )  # fmt: skip
    if not done.output:
        raise Failure(f"loaderbench: {done.last_output()}")
    found = json.loads(done.output)["rows"]
    for row in found:
        if "error" in row:
            part.test(f"{row['threads_asked']} threads", "failed", detail=row["error"])
    found = [row for row in found if "error" not in row]
    if not found:
        return
    rows = [[row["threads"], row["images_per_s"], row["images_per_s"] / found[0]["images_per_s"] / row["threads"] * found[0]["threads"] * 100,
             row["cpu_us"], row["limit"]] for row in found]  # fmt: skip
    part.table(f"random_resized_crop(224) hflip of short side 256, batch {batch}", ["threads", "images/s", "% of linear", "CPU us/image", "limit"], rows)
    part.figure("loader_images_per_s", max(row["images_per_s"] for row in found))
