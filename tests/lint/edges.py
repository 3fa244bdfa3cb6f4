#!/usr/bin/env python3
"""Checks includes between folders. Fails on includes that the table does not allow, includes that are not relative to the root of the
tree, unused rows, and rows that let another program include the daemon.

    tests/lint/edges.py [TREE]

A row has a folder, without its subfolders, and what it may include: a folder, which stands for all headers directly in it, or a header. Every
folder may include itself and format/base, tests may include anything; nothing may include tests.
"""
import os
import pathlib
import re
import sys

TABLE = {
    "format/base": "",
    "format/base/sandbox": "",
    "format/base/system": "",
    "format/base/text": "",
    # libpackimg: packimg.h is its public header
    "format": "format/codec format/codec/jpeg format/where",
    "format/codec": "format/packimg.h format/error.h format/layout.h format/codec/jpeg",
    "format/codec/jpeg": "format/codec/scratch.h format/codec/jpeg/kernels",
    "format/codec/jpeg/kernels": "",
    "format/where": "format/where.h",
    "format/write": "format format/codec",

    # augment, on top of libpackimg. transform.h is its public header; resize.h: the resizer alone; claim.h: number of samples per claim;
    # deferred.h: the part of a pipeline that the client executes; deferrable.h: the transforms that the client can execute
    "format/augment": "format/packimg.h format/augment/apply format/augment/grammar format/augment/kernels",
    "format/augment/apply": "format/packimg.h format/augment/deferred.h format/augment/frame.h format/augment/mosaic.h format/augment/grammar format/augment/kernels format/augment/resize",
    "format/augment/grammar": "format/augment/pipeline.h format/augment/kernels",
    "format/augment/kernels": "format/augment/colour.h format/augment/pipeline.h",
    "format/augment/resize": "format/packimg.h format/augment/resize.h format/augment/kernels/vectors.h "
                             "format/augment/kernels/block.h",

    "proto": "",
    "proto/client": "proto",
    "proto/python": "proto/client/feed.h format/augment/transform_list.h "
                    # the writer encodes as packimg does
                    "format/error.h format/packimg.h tools/packimg/image/sample_encoder.h",

    # the daemon: from readers over batches to threads; the supervisor, which includes none of these, and the worker
    # order: which samples a feed delivers, in which order
    "loaderd/order": "format/packimg.h format/hints.h",
    "loaderd/io": "format/packimg.h format/join.h proto/filling.h loaderd/crash_marker.h loaderd/order",
    "loaderd/batch": "format/join.h proto/ring.h proto/ring_layout.h proto/stage.h format/augment/pipeline.h format/augment/mix_images.h format/augment/frame.h format/augment/mosaic.h format/augment/paste.h format/augment/claim.h loaderd/crash_marker.h "
                     "loaderd/io loaderd/order",
    "loaderd/pool": "loaderd/batch loaderd/io loaderd/crash_marker.h loaderd/cpus.h",
    "loaderd": "proto loaderd/supervisor/supervisor.h loaderd/worker/worker.h",
    "loaderd/supervisor": "proto loaderd",
    "loaderd/worker": "format/packimg.h format/join.h format/where.h proto loaderd loaderd/batch loaderd/io loaderd/order loaderd/pool",

    # the trainer: only estimate includes more of the device than its interface, from CUDA
    "trainer": "trainer/device/graph.h trainer/log trainer/estimate trainer/run",
    "trainer/recipe": "format/augment/deferrable.h trainer/algorithms/schedules.h trainer/device/optimizers/optimizers.h trainer/log/sinks.h "
                      "trainer/model/networks.h",
    "trainer/model": "trainer/recipe trainer/device/device.h trainer/device/params.h trainer/device/graph.h trainer/device/ops.h",
    "trainer/algorithms": "format/augment/mix.h trainer/recipe trainer/model "
                          "trainer/device/device.h trainer/device/params.h trainer/device/graph.h trainer/device/ops.h trainer/device/steps.h",
    "trainer/checkpoint": "trainer/recipe trainer/algorithms/plateau.h trainer/device/pos_embed.h "
                          "trainer/device/device.h trainer/device/params.h trainer/device/parts.h",
    "trainer/estimate": "trainer/recipe trainer/model trainer/algorithms "
                    "trainer/device/device.h trainer/device/params.h trainer/device/graph.h trainer/device/buckets.h trainer/device/shards.h trainer/device/cuda trainer/device/cuda/lowering "
                    "trainer/device/cuda/ranks/collective.h",
    "trainer/log": "trainer/recipe",
    # run: its folders include only the context and lower layers; run connects them; further folders hold what uses a whole run
    "trainer/run/output": "trainer/run/context.h trainer/checkpoint trainer/log "
                          "trainer/device/device.h trainer/device/params.h trainer/device/steps.h trainer/device/comm/comm.h",
    "trainer/run/input": "format/augment/deferred.h trainer/run/context.h trainer/run/step_queue.h trainer/run/output trainer/recipe trainer/checkpoint "
                         "trainer/device/device.h trainer/device/steps.h trainer/device/comm/comm.h proto/client/feed.h proto/client/fetch.h format/packimg.h",
    "trainer/run/network": "trainer/run/context.h trainer/run/hash.h trainer/run/input trainer/recipe trainer/model trainer/algorithms "
                           "trainer/checkpoint trainer/device/device.h trainer/device/params.h trainer/device/graph.h trainer/device/steps.h",
    "trainer/run": "trainer/run/input trainer/run/network trainer/run/output trainer/run/evaluate trainer/recipe "
                   "trainer/algorithms trainer/checkpoint trainer/log "
                   "trainer/device/device.h trainer/device/params.h trainer/device/graph.h trainer/device/steps.h trainer/device/comm/comm.h",
    "trainer/run/evaluate": "trainer/run trainer/run/input/targets.h trainer/run/network trainer/run/output trainer/algorithms trainer/checkpoint trainer/log "
                            "trainer/device/params.h trainer/device/graph.h trainer/device/ops.h trainer/device/steps.h proto/client/feed.h",
    "trainer/run/report": "trainer/run trainer/algorithms trainer/checkpoint "
                          "trainer/device/device.h trainer/device/graph.h trainer/device/steps.h trainer/device/onnx/onnx.h",
    "trainer/run/search": "trainer/run trainer/run/network trainer/run/output trainer/algorithms trainer/log "
                          "trainer/device/params.h trainer/device/graph.h trainer/device/steps.h",
    "trainer/device": "format/augment/deferred.h trainer/device/comm/comm.h trainer/device/optimizers",
    "trainer/device/onnx": "trainer/device",
    "trainer/device/optimizers": "trainer/device/params.h",
    "trainer/device/comm": "",
    "trainer/device/comm/tcp": "trainer/device/comm",
    "trainer/device/cpu": "format/augment/deferred.h trainer/device trainer/device/optimizers",
    "trainer/device/cuda": "trainer/device trainer/device/cuda/lowering trainer/device/cuda/ranks trainer/device/cuda/kernels",
    "trainer/device/cuda/execute": "trainer/device/cuda trainer/device/cuda/kernels",
    "trainer/device/cuda/lowering": "trainer/device trainer/device/cuda trainer/device/cuda/ops",
    "trainer/device/cuda/ops": "trainer/device/pos_embed.h trainer/device/cuda trainer/device/cuda/lowering trainer/device/cuda/kernels",
    "trainer/device/cuda/ranks": "trainer/device trainer/device/comm/comm.h trainer/device/cuda",
    "trainer/device/cuda/cudnn": "trainer/device/device.h trainer/device/ops.h trainer/device/cuda",
    "trainer/device/cuda/kernels": "format/augment/deferred.h trainer/device/dropout_rng.h trainer/device/pos_embed.h trainer/device/cuda trainer/device/cuda/kernels/common trainer/device/optimizers "
                                   "trainer/device/params.h trainer/device/ops.h trainer/device/steps.h",
    "trainer/device/cuda/kernels/common": "trainer/device/ops.h trainer/device/cuda trainer/device/cuda/kernels",

    # S3 and HTTP
    "tools/store": "format/error.h format/layout.h format/packimg.h format/set_file.h",
    "tools/fetch": "format/header.h format/packimg.h format/error.h proto tools/store",
    "tools/packimg/common": "format/error.h format/header.h format/packimg.h format/set_file.h tools/store",
    "tools/packimg/image": "format/packimg.h format/augment/resize.h tools/packimg/common",
    "tools/packimg/source": "format/foreign_format.h format/packimg.h tools/packimg/common tools/packimg/image/image_format.h",
    "tools/packimg/convert": "format/foreign_format.h tools/packimg/common tools/packimg/image tools/packimg/source",
    "tools/packimg/estimate": "format/packimg.h format/augment/pipeline.h format/augment/claim.h tools/packimg/common tools/packimg/image tools/packimg/source",
    "tools/packimg": "format/packimg.h format/where.h format/hints.h tools/packimg/common tools/packimg/convert tools/packimg/image tools/packimg/source",
    "tools/packimg/view": "format/packimg.h format/augment/pipeline.h format/augment/frame.h format/augment/resize.h tools/packimg/selection.h "
                          "tools/packimg/common tools/packimg/image",
    "tools/loaderctl": "proto proto/client",
    "tools/shapes": "format/packimg.h",

    "bench": "format/packimg.h bench/measure bench/report",
    "bench/measure": "proto/limit.h proto/fetch.pb-c.h proto/client",
    "bench/report": "format/packimg.h proto/client format/augment/pipeline.h format/augment/claim.h "
                    "tools/packimg/common/text.h tools/packimg/estimate bench/measure",
    "bench/device": "trainer/device/device.h trainer/device/params.h trainer/device/graph.h trainer/device/ops.h trainer/device/steps.h "
                    "trainer/model trainer/recipe",
    # stages of a crop, measured separately with internal functions of libpackimg and augment
    "bench/stages": "format format/codec format/codec/jpeg format/augment format/augment/apply",
}

# Programs: only they and tests include their folders.
PRIVATE = ("loaderd",)
GENERATED = {"proto/feed.pb-c.h", "proto/fetch.pb-c.h", "tools/packimg/image/image_rows.h", "tools/packimg/view/page_assets.h", "trainer/log/events.pb-c.h", "trainer/device/onnx/onnx.pb-c.h"}
INCLUDE = re.compile(r'^\s*#\s*(?:include|define [A-Z_]+_BODY)\s+"([^"\n]+)"', re.MULTILINE)
SOURCE = re.compile(r"\.(c|h|cu|cc|inc|S|c\.in)$")
TOPS = ("bench", "format", "loaderd", "proto", "tests", "tools", "trainer")


def allowed(source, header):
    here, there = os.path.dirname(source), os.path.dirname(header)
    if here == there or there.startswith("format/base") or here.split("/")[0] == "tests":
        return True
    row = TABLE.get(here, "").split()
    return there in row or header in row


def main():
    tree = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2])
    sources = sorted(str(path.relative_to(tree)) for top in TOPS for path in (tree / top).rglob("*")
                     if path.is_file() and SOURCE.search(path.name))
    known = set(sources) | GENERATED
    mistakes, used = [], set()
    for source in sources:
        here = os.path.dirname(source)
        for header in INCLUDE.findall((tree / source).read_text()):
            if "@" in header:
                continue
            if header not in known:
                mistakes.append(f'{source}: "{header}" is no file from the root of the tree on')
                continue
            there = os.path.dirname(header)
            if not allowed(source, header):
                mistakes.append(f'{source}: {here} may not include "{header}": the table in tests/lint/edges.py has no such edge')
            used |= {(here, there), (here, header), (here, None)}
        if here.split("/")[0] != "tests" and here not in TABLE:
            mistakes.append(f"{source}: {here} has no row in tests/lint/edges.py")
    for folder, row in TABLE.items():
        for entry in row.split():
            if entry.split("/")[0] in PRIVATE and entry.split("/")[0] != folder.split("/")[0]:
                mistakes.append(f"tests/lint/edges.py: {folder} may not include {entry}: move what it needs to format")
            if (folder, entry) not in used:
                mistakes.append(f"tests/lint/edges.py: {folder} does not include {entry} any more: remove it from the row")
    print("\n".join(mistakes) or f"{len(sources)} files keep to the table")
    return bool(mistakes)


if __name__ == "__main__":
    sys.exit(main())
