"""loaderd by its Python client, in the rows of ORDERED, which loaderbench has no orders for. The daemon is this program's own."""

import os

import loaderd
import peer

config = peer.config()
daemon = loaderd.Daemon(threads=config["workers"])
PIPELINES = {"mix": f"random_resized_crop({config['side']}) hflip", "buckets": "bucket_resize(crop=random) hflip"}


def options(folder):
    if config["form"] == "buckets":
        return folder, {"buckets": peer.BUCKETS}
    return [loaderd.Part(path, share=share) for path, share in zip(peer.listed(folder), peer.SHARES)], {}


def batches(folder):
    data, order = options(folder)
    feed = loaderd.Feed(
        data, pipeline=PIPELINES[config["form"]], batch_size=config["batch"], shuffle=True, drop_last=True, socket=daemon.socket, **order
    )
    while True:
        batch = next(feed)
        yield {"image": batch.images, **({"part": batch.parts} if config["form"] == "mix" else {})}


peer.serve(
    peer.checked(batches),
    f"private daemon, {config['workers']} threads, {os.environ.get('LOADERD_ISA', 'all')} kernels; {PIPELINES[config['form']]}",
    loaderd=loaderd.__version__,
)
