"""Networks in turn with PyTorch: both sides stay in memory, and the one that is not measured is stopped."""

import statistics

import ahead
import gpu
from budget import Budget
from loaders import Failure, Program

MEASURING = 35  # seconds that measuring a network takes after tuning and compiling
AGAIN = 20  # the same without eager mode
OURS = "loaderd"


def measure_in_turn(setup, running, limit):
    """Measures programs that are ready and stopped, in rounds that each begin with another program. Returns images/s of every round by name, and the error messages of failed programs by name."""
    rounds, lost = {name: [] for name in running}, {}
    names = list(running)
    for turn in range(setup.size("rounds")):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if name in lost:
                continue
            program = running[name]
            program.limit = max(1, min(ahead.START_LIMIT, limit.left()))
            try:
                rounds[name].append(program.measure(setup.size("warmup"), setup.size("seconds")))
                program.pause()
            except Failure as failure:
                lost[name] = str(failure)
    return rounds, lost


def ratios(rounds, ours):
    """Returns the ratio of our speed to that of each other program: the median of the ratios of the rounds."""
    return {
        name: statistics.median(a / b for a, b in zip(rounds[ours], speeds))
        for name, speeds in rounds.items()
        if name != ours and speeds and len(speeds) == len(rounds[ours])
    }


def bandwidth(setup):
    """Returns the bytes per second of a copy on the device; None before it is measured."""
    copied = setup.machine.get("copy GB/s")
    return copied and 1e9 * copied


DERIVED = ["ms/step", "MFU %", "GB/step", "% of copy's GB/s", "% of roofline"]


def derived_figures(setup, properties, speed):
    seconds = properties["batch"] / speed
    mfu = 100 * properties["flops"] / seconds / properties["peak_flops"] if properties["peak_flops"] else None
    moved = properties["bytes_forward"] + properties["bytes_backward"]
    roofline = 100 * properties["roofline_seconds"] / seconds if properties["roofline_seconds"] else None
    rate = bandwidth(setup)
    return [1e3 * seconds, mfu, moved / 1e9 if moved else None, 100 * moved / seconds / rate if moved and rate else None, roofline]


def roofline_note(setup):
    ceilings = setup.ceilings()
    if not ceilings:
        return "Roofline: trainer/devices has no file of this GPU."
    return (
        "MFU: of the data sheet's peak. "
        f"Ceilings of trainer/devices: {ceilings['bytes_per_second'] / 1e12:.2f} TB/s, {ceilings['flops_per_second']['fp16'] / 1e12:.0f} TFLOP/s in 16 bits "
        f"({ceilings['source']}). Roofline: every layer's pass as fast as its bytes or its arithmetic let it. GB: the least that the layers as planned move."
    )


class Comparison:
    """Compares a network in our trainer with PyTorch. Compiled and eager PyTorch are measured separately, because the GPU's memory may not hold all programs."""

    def __init__(self, setup, part, limit, key):
        self.setup, self.part, self.limit = setup, part, limit
        self.network, self.precision = self.key = key
        self.label = f"{self.network[0]}, {self.network[1]}, {self.precision}"
        self.speeds, self.against, self.rows = [], {}, []
        self.ours = None

    def drop_peer(self, name, words):
        self.part.test(f"{self.label}, {name}", "failed" if name == OURS else "skipped", detail=words)

    def start(self, name, program):
        """Starts the program. Returns it ready and stopped; None if it fails."""
        program.limit = max(1, min(ahead.START_LIMIT, self.limit.left()))
        try:
            program.wait_started()
            program.pause()
            return program
        except Failure as failure:
            self.drop_peer(name, str(failure))
            program.close()
            return None

    def ready_programs(self, patience):
        """Returns PyTorch's programs that become ready within `patience` seconds. The others continue to compile."""
        end, found = Budget(patience, self.limit), {}
        for key in [key for key in self.setup.background if key[:2] == self.key]:
            if self.setup.background[key].has_output(end.left()):
                name = f"PyTorch, {key[2]}"
                program = self.start(name, self.setup.background.pop(key))
                if program:
                    found[name] = program
        return found

    def measure_round(self, peers):
        rounds, lost = measure_in_turn(self.setup, {OURS: self.ours, **peers}, self.limit)
        self.speeds += rounds[OURS]
        against = ratios(rounds, OURS) if rounds[OURS] else {}
        self.against |= against
        for name, program in peers.items():
            if rounds[name]:
                speed = statistics.median(rounds[name])
                self.rows.append([name, speed, min(rounds[name]), max(rounds[name]), against.get(name), 1e3 * self.network[2] / speed, None, None, None, None])
                self.part.note(f"{self.network[0]}, {self.network[1]}: {program.properties.get('settings', name)}")
            program.close()
        for name, words in lost.items():
            self.drop_peer(name, words)
        return OURS not in lost

    def run(self, patience, eager=True):
        """patience: maximum seconds to wait for tuning and compiling."""
        setup, end = self.setup, Budget(patience, self.limit)
        tuned = setup.tuning.wait(self.key, end.left()) if setup.tuning else None
        compiled = self.ready_programs(end.left())
        if not eager and not compiled:
            return
        ahead.hold(setup, True)
        others = []
        try:
            ours = Program(setup.bench_command(self.network, "--serve", "-p", self.precision), ahead.cpus(), environment=setup.environment)
            others = [ours]
            if eager and setup.torch:
                # If compiled programs occupy the memory, eager mode starts after they have ended.
                others.append(None if compiled else ahead.resnet_program(setup, self.network, self.precision, "eager"))
            self.ours = self.start(OURS, ours)
            if not self.ours:
                return
            alive = not compiled or self.measure_round(compiled)
            if alive and len(others) > 1:
                others[1] = others[1] or ahead.resnet_program(setup, self.network, self.precision, "eager")
                program = self.start("PyTorch, eager", others[1])
                self.measure_round({"PyTorch, eager": program} if program else {})
            elif alive and not compiled:
                self.measure_round({})
            self.part.note(f"{self.label}: plans {tuned or 'need no tuning'}; behind it: {gpu.state() or 'nvidia-smi says nothing'}")
        finally:
            for program in [*compiled.values(), *others]:
                if program:
                    program.close()
            ahead.hold(setup, False)

    def table_rows(self, name):
        """name: label of our program in the table."""
        if not self.speeds:
            return []
        speed = statistics.median(self.speeds)
        rows = [[name, speed, min(self.speeds), max(self.speeds), None, *derived_figures(self.setup, self.ours.properties, speed)], *self.rows]
        return [[self.network[0], self.network[1], self.precision, *row] for row in rows]


def networks(setup, part, limit):
    """Measures training steps on random batches, alternating with PyTorch."""
    rows, ratios_found = [], {}

    def compare(key, patience, eager, name):
        comparison = Comparison(setup, part, limit, key)
        comparison.run(patience, eager)
        rows.extend(comparison.table_rows(name))
        figure = f"{key[0][0]}_{key[0][1]}_{key[1]}"
        if comparison.speeds and name == OURS:
            part.figure(figure, statistics.median(comparison.speeds))
        if comparison.against:
            # The goal refers to the fastest peer.
            ratios_found[figure] = min(*comparison.against.values(), ratios_found.get(figure, float("inf")))
            part.figure(f"{figure}_ratio", ratios_found[figure])
        part.table(
            "Training, images/s",
            ["net", "px", "precision", "", "median", "least", "most", "loaderd against it", *DERIVED],
            rows,
            [f"Batch {', '.join(str(batch) for batch in dict.fromkeys(batch for _, _, batch in setup.networks()))}. Medians of rounds in turn. loaderd copies every batch from host memory, normalises it and keeps averaged weights; "
             "PyTorch's batch stays on the device. loaderd's plans were tuned, and PyTorch's networks compiled, while tests ran on the same GPU. " + roofline_note(setup)],
        )  # fmt: skip

    def compare_again(patience):
        """Measures PyTorch programs that were still compiling when their network was measured."""
        for key in dict.fromkeys(key[:2] for key in setup.background if key[:2] not in todo):
            if limit.left() > AGAIN:
                compare(key, patience(), False, OURS + ", once more")

    todo = ahead.networks_of(setup)
    while todo:
        key = todo.pop(0)
        if limit.left() > AGAIN:
            compare(key, max(0, limit.left() - MEASURING * (len(todo) + 1)), True, OURS)
        else:
            part.test(f"{key[0][0]}, {key[0][1]}, {key[1]}", "skipped", detail="no time was left for it")
        compare_again(lambda: 0)
    compare_again(lambda: limit.left() - AGAIN)
    for (network, precision, mode), program in setup.background.items():
        part.test(f"{network[0]}, {network[1]}, {precision}, PyTorch, {mode}", "skipped", detail=f"not compiled after {program.age():.0f} s")
