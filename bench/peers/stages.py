"""The row stages: the cost of each stage of a crop on one core, by stages_bench, compared with libjpeg-turbo and other libraries' resize."""

import json
import os
import statistics
import subprocess

from loaders import Loader, Failure

# form: (minimum speed of the entropy stage relative to libjpeg-turbo's region decode; maximum of the back end in microseconds)
FORMS = {"short256": (3.5, 35), "original": (3.5, 75)}
RESIZERS = {
    "pillow": Loader("Pillow", (), "torch", "resizedata.py", library="pillow"),
    "torchvision": Loader("torchvision", (), "torch", "resizedata.py", library="torchvision"),
    "opencv": Loader("OpenCV", (), "ffcv", "resizedata.py", library="opencv"),
}
CROPS = 300
DECODERS = ("c", "avx2", "avx512bw", "avx512", "libjpeg-turbo")
# (what, stage, stage to subtract), as in stages_bench
LINES = [
    ("entropy stage", "entropy", None),
    ("coefficients to pixels", "decode", "entropy"),
    ("resize, flip and store", "crop", "decode"),
    ("back end: coefficients to finished sample", "crop", "entropy"),
    ("back end, warm: each crop repeated, the least", "warm_crop", "warm_entropy"),
    ("decode", "decode", None),
    ("finished sample", "crop", None),
    ("whole image: decode", "image", None),
    ("whole image: coefficients", "coefficients", None),
    ("whole image: the difference", "image", "coefficients"),
]


def bench(options, data, cpus, dump=None):
    command = [options.build / "bench/stages_bench", "--json", "--rounds", "1", data, str(CROPS)]
    if dump:
        command += ["--dump", dump]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cpus)
    )
    if done.returncode:
        raise Failure(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "stages_bench failed")
    return json.loads(done.stdout)


def measure_form(options, data, dump, cpus, log):
    """Measures all decoders and all resizers in turn, round after round."""
    found = {"us": {}, "resize": {}, "missing": {}, "versions": {}}
    running = {}
    try:
        for turn in range(options.rounds):
            measured = bench(options, data, cpus, None if turn else dump)
            for decoder, stages in measured.pop("us").items():
                for stage, values in stages.items():
                    found["us"].setdefault(decoder, {}).setdefault(stage, []).extend(values)
            found.update(measured)
            if turn == 0:
                for key, resizer in RESIZERS.items():
                    try:
                        running[key] = resizer.start({"data": str(dump), "side": measured["side"]}, cpus)
                        found["versions"].update(running[key].wait_ready()["versions"])
                    except Failure as failure:
                        found["missing"][resizer.name] = str(failure)
            for key in list(running):
                try:
                    running[key].ask(0, 0)
                    for name, us in running[key].read(60)["us"].items():
                        found["resize"].setdefault(name, []).append(us)
                except Failure as failure:
                    found["missing"][RESIZERS[key].name] = str(failure)
                    running.pop(key).close()
            log(f"  round {turn + 1} of {options.rounds}: {data.name}, {found['crops']} crops")
    finally:
        for program in running.values():
            program.close()
        dump.unlink(missing_ok=True)
    return found


def measure(stage, options, cpus, log):
    forms = {
        form: measure_form(options, stage.pimg_file(form), stage.files / "crops.rgb", cpus[:1], log) for form in FORMS
    }
    return {"kind": "stages", "title": "What each stage of a crop costs one core", "loaders": {}, "forms": forms}


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def best_decoder(us):
    return next(decoder for decoder in ("avx512", "avx512bw", "avx2", "c") if decoder in us)


def targets(row):
    found = []
    for form, (faster, back_end_us) in FORMS.items():
        us = row["forms"][form]["us"]
        own, theirs = us[best_decoder(us)], us["libjpeg-turbo"]
        found += [
            dict(what=f"{form}: libjpeg-turbo's region decode against the entropy stage", unit="x", at_least=faster,
                 **spread([b / a for a, b in zip(own["entropy"], theirs["decode"])])),
            dict(what=f"{form}: its entropy share alone", unit="x", at_least=0,
                 **spread([b / a for a, b in zip(own["entropy"], theirs["entropy"])])),
            dict(what=f"{form}: back end", unit="us", at_most=back_end_us,
                 **spread([a - b for a, b in zip(own["crop"], own["entropy"])])),
            dict(what=f"{form}: back end, warm", unit="us", at_most=back_end_us,
                 **spread([a - b for a, b in zip(own["warm_crop"], own["warm_entropy"])])),
        ]  # fmt: skip
    return found


def table(row):
    lines = []
    for form, found in row["forms"].items():
        decoders = [decoder for decoder in DECODERS if decoder in found["us"]]
        lines += [
            f"{form}: {found['crops']} crops to {found['side']}, of {found['pixels_per_crop']:,.0f} pixels from images of "
            f"{found['bytes_per_image']:,.0f} bytes; {found['indexed']} with an index", "",
            "| microseconds of CPU time | " + " | ".join(decoders) + " |", "| --- |" + " ---: |" * len(decoders),
        ]  # fmt: skip
        for what, stage, less in LINES:
            cells = []
            for decoder in decoders:
                values = found["us"][decoder].get(stage)
                if values and less:
                    values = [a - b for a, b in zip(values, found["us"][decoder][less])]
                cells.append(f"{statistics.median(values):,.1f}" if values else "")
            lines.append(f"| {what} | " + " | ".join(cells) + " |")
        lines += ["", "Resize alone, of the same crops' pixels: " + (", ".join(
            f"{name} {statistics.median(values):,.0f}" for name, values in found["resize"].items()) or "nobody else's") + "."]  # fmt: skip
        lines += [f"{name} was not measured: {why}." for name, why in found["missing"].items()]
        lines.append("")
    return lines
