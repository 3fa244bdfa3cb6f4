"""The parts that are tests: compare the device's results with the CPU backend and with its own, and run programs under compute-sanitizer."""

import concurrent.futures
import json
import math
import os
import pathlib
import re
import shutil
import subprocess

from budget import BudgetSpent, kill_all
from loaders import Failure
from setup import Skipped

# Maximum relative difference of a loss from the CPU's in fp32: of the first step, and of all steps. The difference grows, because each step changes the
# weights of the next; the growth depends on the learning rate. On an emulated GPU, these networks with an eighth of their width differ
# by up to 3e-8, 3e-5 and 3e-5 in the first step, and by 0.005, 0.009 and 0.012 in the worst of 20.
LEARNING_RATE = 0.001
CPUS = len(os.sched_getaffinity(0))
AT_ONCE = min(8, max(2, CPUS // 2))  # number of concurrent tests: most of their time is starting and planning
LOSS_TOLERANCES = {"fp32": (1e-5, 2e-2), "fp16": (2e-3, 3e-2), "bf16": (5e-3, 3e-2)}


def at_once(function, jobs):
    """Runs function(*job) for a few jobs at a time. Yields (job, result or exception) in the order of the jobs."""

    def result_or_error(job):
        try:
            return function(*job)
        except (Failure, BudgetSpent) as problem:
            return problem

    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    try:
        yield from zip(jobs, pool.map(result_or_error, jobs))
    # If the run is ended, do not wait for running jobs.
    except BaseException:
        kill_all()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def is_result(part, name, found):
    """Returns whether `found` is a result. Records an exception as a late or failed test."""
    if isinstance(found, BudgetSpent):
        part.test(name, "late", detail=str(found))
    elif isinstance(found, Failure):
        part.test(name, "failed", detail=str(found))
    return not isinstance(found, Exception)


def smoke(setup, part, limit):
    """Starts every precision and level of fusion. Also measures the most important network, in case the run ends early."""
    fusions = ("none", "b", "c") if setup.device == "cuda" else ("none",)

    def start(precision, fusion):
        return setup.bench(limit, setup.size("smoke"), "-n", 5, "-p", precision, "--fusion", fusion)["loss"]

    for (precision, fusion), loss in at_once(start, [(precision, fusion) for precision in setup.precisions() for fusion in fusions]):
        name = f"{precision}, fusion {fusion}"
        if is_result(part, name, loss):
            words = "" if loss is not None and math.isfinite(loss) else f"the loss is {loss} after eight steps"
            part.test(name, "failed" if words else "passed", detail=words)
    network, precision = setup.size("layers"), setup.precisions()[0]
    speed = setup.bench(limit, network, "-n", setup.size("steps"), "-p", precision)["images_per_s"]
    part.figure(f"{network[0]}_{network[1]}_{precision}", speed)
    part.note(f"{network[0]} at {network[1]}, batch {network[2]}, {precision}, not autotuned: {speed:,.0f} images/s")


def tap(text):
    """Returns (name, verdict, detail) of every test in cmocka's TAP output."""
    found = []
    for line in text.splitlines():
        match = re.match(r"(not )?ok \d+ (-|# SKIP) (\S+)", line)
        if match:
            found.append([match[3], "skipped" if match[2] != "-" else "failed" if match[1] else "passed", ""])
        elif line.startswith("#") and found and found[-1][1] == "failed":
            found[-1][2] = (found[-1][2] + " " + line.lstrip("# ")).strip()[:400]
    return found


def test_programs(setup, pattern):
    programs = sorted(path for folder in ("kernels/cuda", "unit/trainer") for path in (setup.build / "tests" / folder).glob(pattern) if path.is_file())
    return [path for path in programs if not path.suffix]


def by_lines():
    """Returns the environment variables with which stdbuf(1) makes stdout line-buffered, so that the output of a program that hangs or aborts is not lost."""
    if not shutil.which("stdbuf"):
        return {}
    lines = subprocess.run(["stdbuf", "--output=L", "env"], capture_output=True, text=True).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines if line.startswith(("_STDBUF_O=", "LD_PRELOAD=")))


def note_tests(part, how, done):
    """Records every test of a cmocka program as a test of the part."""
    results = tap(done.output)
    for name, verdict, detail in results:
        part.test(f"{how}: {name}", verdict, detail=detail)
    if done.status and not any(verdict == "failed" for _, verdict, _ in results):
        part.test(how, "skipped" if done.status == 77 else "failed", done.seconds, done.last_output())
    elif not results:
        part.test(how, "failed", done.seconds, "it ran no test")


# Precision and fusion level for each run of the device tests. At level c, cuDNN compiles up to 32 engines, which took
# 38 s of a busy CPU.
VARIANTS = [("fp16", "c"), ("bf16", "c"), ("fp32", "none"), ("bf16", "b"), ("fp16", "none"), ("fp16", "b"), ("bf16", "none"), ("fp32", "b")]


def operations(setup, part, limit):
    """Tests our kernels, cuDNN's patterns, each operation forward and backward, nets and the update against references."""
    patterns = () if setup.fake_gpu else ("test_cuda_kernels*", "test_cuda_conv*", "test_cuda_matmul", "test_cuda_nccl")
    own = [program for pattern in patterns for program in test_programs(setup, pattern)]
    programs = [setup.program(f"tests/unit/trainer/test_device_{name}") for name in ("ops", "net", "update")]
    variants = [
        (program, {"DEVICE_TEST_PRECISION": precision, "DEVICE_TEST_FUSION": fusion})
        for precision, fusion in VARIANTS if precision in setup.precisions() for program in programs
    ]  # fmt: skip
    # The longest ones start first.
    jobs = variants[: len(programs)] + [(program, {}) for program in own] + variants[len(programs) :]
    environment = dict(setup.environment, CMOCKA_MESSAGE_OUTPUT="TAP", DEVICE_TEST_BACKEND=setup.fake_gpu or "cuda") | by_lines()
    for (program, variables), done in at_once(lambda program, variables: setup.run([program], limit, environment | variables), jobs):
        how = ", ".join([program.name, *variables.values()])
        if is_result(part, how, done):
            note_tests(part, how, done)


# ---- training ----


def train(setup, limit, name, network, steps, *settings, options=(), environment=None, launcher=()):
    """Trains on the synthetic images. Returns the step lines of the log. launcher: what starts the trainer, with its arguments."""
    net, side, batch = network
    data = setup.shapes(limit)
    output = setup.work / name
    samples = json.loads(setup.output([setup.program("tools/packimg/packimg"), "info", "--json", data], limit))["samples"]
    recipe = setup.work / f"{name}.ini"
    recipe.write_text(f"[optim]\nlr = {LEARNING_RATE}\n[schedule]\nname = constant\n[train]\nseed = 1\nema = 0.9\n[log]\ninterval = 1\n")
    setup.output(
        [*launcher, setup.program("trainer/trainer"), recipe, f"--output={output}", *options, f"data.train={data}",
         f"data.pipeline=random_resized_crop({side}, scale=0.25:1) hflip(0.5)", f"data.batch_size={batch}", f"model.name={net}",
         f"model.width={setup.size('width')}", f"train.epochs={steps / (samples // batch)!r}", "checkpoint.every=0", *settings],
        limit, dict(environment or setup.environment, LOADERD=str(setup.program("loaderd/loaderd"))),
    )  # fmt: skip
    lines = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return {line["step"]: line for line in lines if line["event"] == "step"}


def loss_jobs(setup):
    """Returns (role, network, device, precision) of each run: references on the CPU first, and last the tuned run, which takes longest to start and is the only one that may be skipped."""
    networks = setup.size("losses")
    jobs = [("reference", network, "cpu", "fp32") for network in networks]
    jobs += [("device", network, setup.device, precision) for network in networks for precision in setup.precisions()]
    return jobs + [("tuned", networks[-1], setup.device, "fp16")] * ("fp16" in setup.precisions())


def losses(setup, part, limit):
    """Compares the losses of the first steps of a training on the device with those on the CPU."""
    setup.shapes(limit)
    steps, rows = setup.size("losses_steps"), []
    tuned = dict(setup.environment, XDG_CACHE_HOME=str(setup.work / "tuned-losses"))

    def run(role, network, device, precision):
        name = f"losses-{role}-{network[0]}-{precision}"
        # Only a few at a time, since compilers run in parallel.
        settings = [f"train.device={device}", f"train.precision={precision}", f"train.threads={max(1, CPUS // AT_ONCE)}"]
        if role == "tuned":
            # A separate cache: the other runs use the plans of the heuristics.
            return train(setup, limit, name, network, steps, *settings, "train.autotune=yes", environment=tuned)
        return train(setup, limit, name, network, steps, *settings)

    references = {}
    for (role, network, _, precision), found in at_once(run, loss_jobs(setup)):
        net, side, batch = network
        how = {"reference": ", on the CPU", "device": "", "tuned": ", tuned plans"}[role]
        name = f"{net}, {precision}{how}"
        # Slow tuning does not count as late.
        if role == "tuned" and isinstance(found, BudgetSpent):
            part.test(name, "skipped", detail=str(found))
            continue
        if not is_result(part, name, found):
            continue
        if role == "reference":
            references[network] = found
        elif network in references:
            reference = references[network]
            part.test(name, *judge_losses(reference, found, steps, LOSS_TOLERANCES[precision]))
            errors = relative(reference, found)
            rows.append([net, precision + how, reference[1]["loss"], found[1]["loss"], errors[1], reference[steps]["loss"], found[steps]["loss"],
                         max(errors.values())])  # fmt: skip
            part.table(
                f"Losses over {steps} steps, {side} x {side}, batch {batch}",
                ["net", "precision", "step 1, CPU fp32", "device", "relative", f"step {steps}, CPU fp32", "device", "largest relative"],
                rows,
            )
        if role == "tuned" and not setup.fake_gpu:
            part.test(f"{name}, kept", *judge_plans(count_plans(pathlib.Path(tuned["XDG_CACHE_HOME"]))))


def count_plans(cache):
    """Returns the number of tuned plans in a cache, and the number of problems that run faster unfused."""
    path = cache / "loaderd/cudnn-plans"
    tags = [line.split("\t")[2] for line in path.read_text().splitlines()[1:]] if path.exists() else []
    return len(tags) - tags.count("apart"), tags.count("apart")


def judge_plans(kept):
    """Returns (verdict, seconds, detail) of a test that fails if no plan was timed; the comparison of losses would then only repeat the one
    with the heuristics' plans.
    """
    plans, apart = kept
    return "passed" if plans else "failed", 0, f"{plans} plans; {apart} problems that are faster apart"


def relative(reference, found):
    return {step: abs(found[step]["loss"] - line["loss"]) / abs(line["loss"]) for step, line in reference.items() if step in found}


def judge_losses(reference, found, steps, tolerances):
    """Verdict, seconds and detail of a test."""
    if len(reference) != steps or len(found) != steps:
        return "failed", 0, f"{len(found)} steps on the device, {len(reference)} on the CPU, of {steps}"
    errors = relative(reference, found)
    for tolerance, values, what in ((tolerances[0], [errors[1]], "the first step"), (tolerances[1], errors.values(), "a step")):
        # NaN is outside every tolerance.
        if not all(value <= tolerance for value in values):
            return "failed", 0, f"the loss of {what} is off by {max(values):.2g} relative, allowed are {tolerance:g}"
    return "passed", 0, ""


def replay(setup, part, limit):
    """Compares bit for bit: captured with launched steps, a run with a resumed one, a run with its repetition."""
    network, steps = setup.size("replay"), setup.size("losses_steps")
    precision = setup.precisions()[0]
    found = {}
    for name, options in (("replayed", []), ("replayed again", []), ("eager", ["--eager"])):
        found[name] = setup.bench(limit, network, "-n", steps, "-p", precision, "--deterministic", *options)["loss"]
    for name in ("replayed again", "eager"):
        same = found[name] is not None and found[name] == found["replayed"]
        part.test(f"{name} as replayed, {precision}, loss after {steps} steps", "passed" if same else "failed",
                  detail="" if same else f"{found[name]!r} is not {found['replayed']!r}")  # fmt: skip
    middle = steps // 2
    settings = [f"train.device={setup.device}", f"train.precision={precision}", "train.deterministic=yes"]
    whole = train(setup, limit, "unbroken", network, steps, *settings, f"checkpoint.every_steps={middle}", "checkpoint.keep=9")
    checkpoint = next((setup.work / "unbroken").glob(f"checkpoint-*{middle}.safetensors"))
    rest = train(setup, limit, "resumed", network, steps, *settings, options=[f"--resume={checkpoint}"])
    differ = [step for step in range(middle + 1, steps + 1) if step not in rest or rest[step]["loss_hex"] != whole[step]["loss_hex"]]
    part.test(f"resumed at step {middle}, {precision}", "failed" if differ else "passed",
              detail=f"step {differ[0]}'s loss differs" if differ else "")  # fmt: skip


# ---- compute-sanitizer ----

FOUND = 99  # exit status of compute-sanitizer if it found errors


def judge_sanitizer(done):
    """Verdict, seconds and detail of a test."""
    said = [line.strip("= ") for line in done.output.splitlines() if line.startswith("====")]
    summary = [line for line in said if "SUMMARY: " in line]
    unsupported = [line for line in said if "not supported" in line.lower()]
    if unsupported:
        return "skipped", done.seconds, unsupported[0]
    # Without a summary the tool did not finish.
    if not summary:
        return "failed", done.seconds, f"exit status {done.status}: {done.last_output()}"
    if done.status:
        first = next((line for line in said if line and "COMPUTE-SANITIZER" not in line), "")
        return "failed", done.seconds, f"{summary[-1]}; exit status {done.status}; first: {first}"
    return "passed", done.seconds, summary[-1]


def sanitizer(setup, part, limit):
    """Runs our kernels' tests under memcheck and racecheck, and every operation in fp16 under memcheck only, because racecheck would also check cuDNN's kernels."""
    if setup.fake_gpu:
        raise Skipped("it needs a GPU")
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if not tool:
        raise Skipped("compute-sanitizer is not installed")
    # The longest ones start first.
    jobs = [("memcheck", setup.program("tests/unit/trainer/test_device_ops"))]
    jobs += [(kind, program) for kind in ("memcheck", "racecheck") for program in test_programs(setup, "test_cuda_kernels*")]
    environment = dict(setup.environment, DEVICE_TEST_BACKEND="cuda", DEVICE_TEST_PRECISION="fp16")

    def check(kind, program):
        # Our programs check the results of CUDA calls; a failing call inside a library need not be an error.
        more = ["--report-api-errors", "no"] if kind == "memcheck" else []
        return setup.run([tool, "--tool", kind, *more, "--error-exitcode", str(FOUND), "--print-limit", "5", program], limit, environment)

    for (kind, program), done in at_once(check, jobs):
        name = f"{kind}: {program.name}"
        # Slowness of the tool does not count as late.
        if isinstance(done, BudgetSpent):
            part.test(name, "skipped", detail=str(done))
        elif is_result(part, name, done):
            part.test(name, *judge_sanitizer(done))
