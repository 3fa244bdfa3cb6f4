"""Compares this build with another build of loaderd, and the other build with itself to show the noise.

measure() takes a row's name and returns a row of kind "against": loaders by setting and build ("usual", "usual other", "usual again"), which take
turns, round after round. It compares images per second of wall-clock time, as in the other rows, and the inverse of the CPU time of the daemon's
threads per image, which other programs on the machine disturb less.
"""

import math
import statistics

from loaders import STEADINESS, Loader, Failure

WITHIN = 0.98  # minimum speed relative to the other build, within the error of measurement
BUILDS = ("", " other", " again")


def settings_of(name):
    """Returns the settings of a row that every build is measured with."""
    return STEADINESS if name == "steadiness" else {"usual": Loader("usual", ())}


def measure(options, name, title, config, cpus, log):
    """Measures a row. config: argument of Loader.start(), whose "build" is replaced."""
    found, running = {}, {}
    builds = dict(zip(BUILDS, (options.build, options.against, options.against)))
    for setting, loader in settings_of(name).items():
        for which, build in builds.items():
            key = setting + which
            found[key] = {"name": loader.name + which, "peer": False, "images_per_s": [], "images_per_cpu_s": []}
            running[key] = loader.start(dict(config, build=build), cpus)
    for turn in range(options.rounds):
        order = list(running)
        # The three builds of a setting run one after the other; each round starts with another one.
        for at in range(0, len(order), len(BUILDS)):
            three = order[at : at + len(BUILDS)]
            first = turn % len(BUILDS)
            for key in three[first:] + three[:first]:
                try:
                    found[key]["images_per_s"].append(running[key].measure(options.warmup, options.seconds))
                    found[key].update(running[key].properties)
                    found[key]["images_per_cpu_s"].append(1e6 / found[key]["detail"]["cpu_us"])
                except Failure as failure:
                    found[key]["error"] = str(failure)
                    raise
        log(f"  {name}, round {turn + 1} of {options.rounds}")
    return {"kind": "against", "title": f"{title}, this build against another", "loaders": found, "targets": targets(found)}


def compared(ours, other, by):
    """Returns the median of the ratios of adjacent measurements, its standard error, and the range of the ratios."""
    ratios = [a / b for a, b in zip(ours[by], other[by])]
    error = 1.2533 * statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else 0
    return {"unit": "x", "median": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "error": error}


def targets(found):
    lines = []
    for key, result in found.items():
        if key.endswith(BUILDS[1:]):
            continue
        other, again = found[key + BUILDS[1]], found[key + BUILDS[2]]
        for what, by in (("speed", "images_per_s"), ("images per CPU time", "images_per_cpu_s")):
            name = f"{result['name']}: {what}"
            lines.append({"what": f"{name}, of the other build's", "at_least": WITHIN, **compared(result, other, by)})
            lines.append({"what": f"{name}, the other build's of its own", "at_least": 0, **compared(again, other, by)})
    return lines


def table(row):
    lines = ["| | images/s | range | images per s of CPU |", "| --- | ---: | ---: | ---: |"]
    for result in row["loaders"].values():
        speeds = result["images_per_s"]
        lines.append(
            f"| {result['name']} | {statistics.median(speeds):,.0f} | {min(speeds):,.0f} - {max(speeds):,.0f} "
            f"| {statistics.median(result['images_per_cpu_s']):,.0f} |"
        )
    return lines + [""]
