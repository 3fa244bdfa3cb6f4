"""The recorded labels of each step (recorder/sitecustomize.py), which are sample numbers."""

import json
import pathlib
import statistics
from collections import Counter
from typing import NamedTuple


class Step(NamedTuple):
    t: float  # seconds
    train: bool
    labels: "list[int]"




def read(folder: pathlib.Path) -> "list[list[Step]]":
    """Returns, in order, the steps of each process that made any."""
    ranks = []
    for file in sorted(folder.iterdir(), key=lambda path: int(path.name)):
        ranks.append([Step(**json.loads(line)) for line in file.read_text().splitlines()])
    return ranks


def train(ranks: "list[list[Step]]") -> "list[list[Step]]":
    return [[step for step in steps if step.train] for steps in ranks]


def passes(steps: "list[Step]", is_train: bool) -> "list[list[Step]]":
    """Returns runs of consecutive steps of one kind, training or evaluation."""
    found: "list[list[Step]]" = []
    before = False
    for step in steps:
        if step.train == is_train:
            if not before:
                found.append([])
            found[-1].append(step)
        before = step.train == is_train
    return found


def epochs(steps: "list[Step]", samples: int) -> "list[list[Step]]":
    """Splits one rank's training steps into epochs of `samples` samples. Each epoch must end with a batch."""
    found: "list[list[Step]]" = [[]]
    count = 0
    for step in steps:
        if count == samples:
            found.append([])
            count = 0
        found[-1].append(step)
        count += len(step.labels)
        if count > samples:
            raise AssertionError(f"epoch {len(found) - 1}: a batch crosses sample {samples} of the rank")
    return found


def labels(steps: "list[Step]") -> "list[int]":
    return [label for step in steps for label in step.labels]


def expect_each_once(seen: "list[int]", samples: int, what: str) -> None:
    """Asserts that `seen` contains each number below `samples` once."""
    if sorted(seen) == list(range(samples)):
        return
    count = Counter(seen)
    twice = [number for number, times in count.items() if times > 1]
    missing = [number for number in range(samples) if number not in count]
    raise AssertionError(
        f"{what}: {len(seen)} samples for {samples}; {len(twice)} more than once, such as {sorted(twice)[:5]}; {len(missing)} never, such as {missing[:5]}")


def check_epochs(ranks: "list[list[Step]]", world: int, samples: int, count: int, shuffled: bool = True) -> "list[list[list[Step]]]":
    """Asserts that each of `count` epochs has every sample once over all ranks, and with shuffling in a different order than the previous epoch.
    Returns [epoch][rank].
    """
    ranks = train(ranks)
    if len(ranks) != world:
        raise AssertionError(f"{len(ranks)} processes have trained, not {world}")
    by_rank = [epochs(steps, samples // world) for steps in ranks]
    by_epoch = [list(parts) for parts in zip(*by_rank)]
    if len(by_epoch) != count or any(len(parts) != count for parts in by_rank):
        raise AssertionError(f"{[len(parts) for parts in by_rank]} epochs by rank, not {count}")
    orders = []
    for number, parts in enumerate(by_epoch):
        expect_each_once([label for steps in parts for label in labels(steps)], samples, f"epoch {number}")
        orders.append([labels(steps) for steps in parts])
    for before, after in zip(orders, orders[1:]):
        if shuffled and before == after:
            raise AssertionError("two epochs have the same order")
    return by_epoch


def check_validation(ranks: "list[list[Step]]", world: int, samples: int, count: int) -> None:
    """Asserts that each of `count` evaluations has every sample once over all ranks."""
    by_rank = [passes(steps, False) for steps in ranks if steps]
    if [len(found) for found in by_rank] != [count] * world:
        raise AssertionError(f"{[len(found) for found in by_rank]} validations by rank, not {count}")
    for number, parts in enumerate(zip(*by_rank)):
        expect_each_once([label for steps in parts for label in labels(steps)], samples, f"validation {number}")


def rate(by_epoch: "list[list[list[Step]]]") -> float:
    """Returns images/s of all ranks: the median over epochs, each from the end of its first step to the end of its last."""
    rates = []
    for parts in by_epoch:
        images = sum(len(labels(steps[1:])) for steps in parts)
        seconds = max(steps[-1].t for steps in parts) - min(steps[0].t for steps in parts)
        rates.append(images / seconds)
    return statistics.median(rates)
