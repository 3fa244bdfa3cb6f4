"""Evaluates the rows of a run: medians, spreads and ratios, compared with the targets, as tables.

A row is a dictionary: name, kind ("feed", "steadiness", "convert" or "stages"), title, loaders (by key: name, images_per_s of
every round, and the loader's report), targets, and the time, revision and settings of the measurement.
"""

import math
import statistics

import against
import stages

BY_CPU = "images per CPU time"  # which other programs on the machine disturb less than images per second
# Targets of each row: (what, minimum). "best peer" is the fastest peer; compare() has the others.
TARGETS = {
    "short256": [("best peer", 5), (BY_CPU, 0), ("AVX2", 0.6)],
    "short256-128": [("best peer", 5), (BY_CPU, 0), ("AVX2", 0.6)],
    "original": [("best peer", 4), (BY_CPU, 0), ("PyTorch", 8), ("AVX2", 0.6)],
    "raw": [("best peer", 5), (BY_CPU, 0), ("AVX2", 0.6)],
    "mask512": [("best peer", 5), (BY_CPU, 0), ("AVX2", 0)],
    "mask2048": [("best peer", 5), (BY_CPU, 0), ("AVX2", 0)],
    "boxes": [("best peer", 5), (BY_CPU, 0), ("AVX2", 0)],
    "depth16": [("best peer", 4), (BY_CPU, 0), ("AVX2", 0)],
    **{f"views2{of}": [("best peer", 4), (BY_CPU, 0), ("AVX2", 0)] for of in ("", "-512", "-2048")},
    **{f"views10{of}": [("best peer", 3), ("antialiasing peer", 4), (BY_CPU, 0), ("AVX2", 0)] for of in ("", "-512", "-2048")},
    "mix-512": [("best peer", 4), (BY_CPU, 0), ("AVX2", 0)],
    "buckets-512": [("best peer", 4), (BY_CPU, 0), ("AVX2", 0)],
    "simclr": [("PyTorch", 20), (BY_CPU, 0), ("AVX2", 0)],
    "steadiness": [("batch sizes", 0.95), ("8 threads", 0.95), ("neighbour", 1)],
    "convert": [("verbatim", 0.25), ("verbatim, no index", 0), ("re-encoding", 1)],
}


def summarise(results):
    for result in results.values():
        speeds = result["images_per_s"]
        if speeds and "error" not in result:
            result.update(median=statistics.median(speeds), min=min(speeds), max=max(speeds))
    return results


def ratio(found, ours, other, by="images_per_s"):
    """Returns the median and range of the ratios of all rounds; measurements of a round are adjacent in time."""
    if not all("median" in found.get(key, {}) and found[key].get(by) for key in (ours, other)):
        return None
    rounds = [a / b for a, b in zip(found[ours][by], found[other][by])]
    return {"of": found[ours]["name"], "against": found[other]["name"],
            "median": statistics.median(rounds), "min": min(rounds), "max": max(rounds)}  # fmt: skip


def normalize_by_round(found):
    """
    Divides each round by the mean of the loaders without a busy neighbour, which removes changes of the machine's speed. For comparisons in which a
    few per cent matter.
    """
    own = {key: result for key, result in found.items() if "median" in result}
    alone = [result["images_per_s"] for key, result in own.items() if key != "neighbour"]
    means = [statistics.mean(speeds) for speeds in zip(*alone)]
    return summarise(
        {key: {**result, "images_per_s": [a / b for a, b in zip(result["images_per_s"], means)]} for key, result in own.items()}
    )


def error_of(values):
    """Returns the standard error of the median of normally distributed values."""
    return 1.2533 * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0


def normalized_ratio(found, ours, other, shares=None):
    """Returns the ratio of the medians of levelled loaders, and its standard error. shares: factor of the other's rate, by round."""
    if not all(key in found for key in (ours, other)):
        return None
    base = found[other]["median"]
    rounds = [a / base / share for a, share in zip(found[ours]["images_per_s"], shares or [1] * len(found[ours]["images_per_s"]))]
    return {"of": found[ours]["name"], "against": found[other]["name"],
            "median": statistics.median(rounds), "min": min(rounds), "max": max(rounds),
            "error": math.hypot(error_of(rounds), error_of(found[other]["images_per_s"]) / base)}  # fmt: skip


def fastest(found, keys, by="images_per_s"):
    measured = [key for key in keys if "median" in found.get(key, {}) and found[key].get(by)]
    return max(measured, key=lambda key: statistics.median(found[key][by])) if measured else None


def peers(found):
    return [key for key in found if found[key].get("peer")]


def compare_steadiness(found, what, workers):
    if what == "batch sizes":
        sizes = [key for key in found if key == "usual" or key.startswith("batch-")]
        best = fastest(found, sizes)
        ratios = [normalized_ratio(found, key, best) for key in sizes if key != best]
        return min(ratios, key=lambda r: r["median"], default=None)
    if what == "8 threads":
        others = [key for key in found if key == "usual" or key.startswith("threads-") and key != "threads-8"]
        return normalized_ratio(found, "threads-8", fastest(found, others))
    taken = found.get("neighbour", {}).get("neighbour_cpus")
    return taken and normalized_ratio(found, "neighbour", "usual", [1 - cpus / workers for cpus in taken])


def compare(row, what):
    """Returns the ratio to which a target applies, or None."""
    found = row["loaders"]
    if what == "best peer":
        return ratio(found, "loaderd", fastest(found, peers(found)))
    if what == BY_CPU:
        by = "images_per_cpu_s"
        return ratio(found, "loaderd", fastest(found, peers(found), by), by)
    if what == "antialiasing peer":
        return ratio(found, "loaderd", fastest(found, [key for key in peers(found) if key != "tf.data"]))
    if what == "PyTorch":
        return ratio(found, "loaderd", fastest(found, [key for key in found if key.startswith("torch")]))
    if what == "AVX2":
        return ratio(found, "loaderd-avx2", "loaderd")
    if what in ("batch sizes", "8 threads", "neighbour"):
        return compare_steadiness(normalize_by_round(found), what, row["workers"])
    pairs = {"re-encoding": ("loaderd", "ffcv"), "verbatim": ("loaderd-verbatim", "cp"),
             "verbatim, no index": ("loaderd-no-index", "cp")}  # fmt: skip
    return ratio(found, *pairs[what])


def explain(row, what, r):
    """Describes both sides of the ratio r, whose name is `what`."""
    if what == "AVX2":
        return "with the kernels capped at AVX2, of what it does uncapped"
    if what == "batch sizes":
        return f"{r['of']}, the slowest, of {r['against']}, the fastest"
    if what == "8 threads":
        return f"of {r['against']}, the fastest other number"
    if what == "neighbour":
        taken = statistics.median(row["loaders"]["neighbour"]["neighbour_cpus"])
        return f"of what is left by a neighbour that takes {taken:.2f} of {row['workers']} CPUs"
    return f"of {r['against']}" if row["kind"] == "convert" else r["against"]


def judge(row):
    """Sets row["targets"]: what is compared, the minimum, and the ratio if it was measured."""
    if row["kind"] == "stages":
        row["targets"] = stages.targets(row)
    elif row["kind"] != "against":
        row["targets"] = [
            dict(what=what, unit="x", at_least=least, **(compare(row, what) or {})) for what, least in TARGETS[row["name"]]
        ]
    return row


def format_value(target, value):
    return f"{value:.2f} x" if target["unit"] == "x" else f"{value:.1f} {target['unit']}"


def spread_of(target):
    text = f"{format_value(target, target['min'])} to {format_value(target, target['max'])} over the rounds"
    return f"± {target['error']:.3f}, {text}" if "error" in target else text


def target_text(target):
    """Returns the target in words; "" if there is none."""
    if "at_most" in target:
        return f"at most {target['at_most']:g} {target['unit']}"
    return f"at least {target['at_least']:g} {target['unit']}" if target["at_least"] else ""


def is_missed(target, slack=0):
    return target["median"] > target["at_most"] + slack if "at_most" in target else target["median"] < target["at_least"] - slack


def verdict(target):
    """Judges a target. A result that misses it by less than its standard error is undecided: an equally good build would miss half of the time."""
    if not target_text(target):
        return "no target"
    near = is_missed(target) and not is_missed(target, target.get("error", 0))
    return f"{target_text(target)}: " + ("within the error of measurement" if near else "**missed**" if is_missed(target) else "met")


def target_line(row, target):
    if "median" not in target:
        return f"- {target['what']}: not measured"
    what = target["what"]
    if "against" in target:
        what += ", " + explain(row, what, target)
    return (
        f"- **{format_value(target, target['median'])}** {what} "
        f"({spread_of(target)}); {verdict(target)}"
    )


BASES = {"feed": "loaderd", "steadiness": "usual", "convert": None}


def loaders_table(row):
    base = BASES[row["kind"]]
    level = normalize_by_round(row["loaders"]) if row["kind"] == "steadiness" else None
    # Ratios are loaderd's rate over a peer's, and the rate of loaderd's variants over its usual one.
    heading = {"feed": "loaderd against it", "steadiness": "against the first", "convert": ""}[row["kind"]]
    lines = [f"| | images/s | range | {heading} | images per s of CPU |", "| --- | ---: | ---: | ---: | ---: |"]
    for key, result in row["loaders"].items():
        if "median" not in result:
            lines.append(f"| {result['name']} | not measured: {result.get('error', 'no round')} | | | |")
            continue
        pair = (base, key) if row["kind"] == "feed" else (key, base)
        compared = normalized_ratio(level, *pair) if level else ratio(row["loaders"], *pair)
        against = compared if base and key != base else None
        lines.append(
            f"| {result['name']} | {result['median']:,.0f} | {result['min']:,.0f} - {result['max']:,.0f} | "
            + (f"{against['median']:.2f} x |" if against else "|")
            + (f" {statistics.median(result['images_per_cpu_s']):,.0f} |" if result.get("images_per_cpu_s") else " |")
        )
    return lines + [""]


def table(row):
    lines = [f"### {row['title']}", ""]
    own_tables = {"stages": stages.table, "against": against.table}
    lines += own_tables.get(row["kind"], loaders_table)(row)
    lines += [target_line(row, target) for target in row["targets"]]
    how = f"{row['rounds']} round{'s' * (row['rounds'] > 1)}"
    if row["kind"] in ("feed", "steadiness", "against"):
        how += f" of {row['seconds']:g} s"
    if row.get("stolen", 0) > 0.005:
        how += f"; {row['stolen']:.1%} of the CPU time was stolen by other virtual machines"
    return "\n".join([*lines, "", f"{how}, {row['date']}, revision {row['revision']}."])


def overview(rows):
    """Returns one table of all targets."""
    lines = ["| row | | measured | range | target |", "| --- | --- | ---: | ---: | ---: |"]
    for row in rows:
        for target in row["targets"]:
            if "median" not in target:
                lines.append(f"| {row['name']} | {target['what']} | not measured | | {target_text(target)} |")
                continue
            against = f" ({target['against']})" if target["what"] in ("best peer", BY_CPU, "PyTorch") else ""
            mark = "**" if is_missed(target) else ""
            error = f" ± {target['error']:.3f}" if "error" in target else ""
            lines.append(
                f"| {row['name']} | {target['what']}{against} | {mark}{format_value(target, target['median'])}{mark}{error} | "
                f"{format_value(target, target['min'])} - {format_value(target, target['max'])} | {target_text(target)} |"
            )
    return "\n".join(lines)


def report(machine, rows):
    versions, settings = {}, {}
    for row in rows:
        for form in row.get("forms", {}).values():
            versions.update(form["versions"])
        for result in row["loaders"].values():
            versions.update(result.get("versions", {}))
            if "settings" in result and row["kind"] == "feed":
                settings.setdefault((result["name"], result["settings"]), []).append(row["name"])
    alone = all(row["kind"] == "against" for row in rows)
    lines = [
        "# Against another build" if alone else "# Peers",
        "",
        f"{machine['cpu']} ({machine['isa']}), {machine['cores_used']} of {machine['cores']} cores used, {machine['memory_gib']} GiB, "
        f"{machine['system']}. Medians of the rounds, loaders in turn; files in the page cache. Random-resized crop to 224 "
        "(or as the row says) and horizontal flip, uint8 batches. Ratios are medians of the rounds' ratios.",
        "",
        *(["Versions: " + ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) + ".", ""] if versions else []),
        *([] if alone else ["![images/s of every loader](peers.svg)", ""]),
        overview(rows),
        "",
    ]
    lines += ["\n\n".join(table(row) for row in rows), ""]
    lines += ["### Settings", ""] if settings else []
    lines += [f"- {name} ({', '.join(names)}): {text}" for (name, text), names in settings.items()]
    return "\n".join(lines)
