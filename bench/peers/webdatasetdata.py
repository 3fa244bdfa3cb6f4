"""WebDataset: a RandomMix of two datasets of tar files, batched in the workers of a WebLoader, with torchvision's decoder and v2 transforms."""

import os

import peer
import torch
import torchloader
import torchvision
import webdataset
from importlib.metadata import version

config = peer.config()
torch.set_num_threads(1)
BUFFER = 1000  # samples of each dataset and worker among which the shuffle draws


def part(folder, number):
    shards = peer.listed(folder)
    data = webdataset.WebDataset(shards, resampled=True, shardshuffle=False, nodesplitter=None).shuffle(BUFFER)
    return data.map(lambda sample: (sample["jpg"], number))


def load(sample):
    data, number = sample
    return {"image": torchloader.crop_bytes(config, data), "part": number}


def batches(folder):
    data = webdataset.RandomMix([part(path, number) for number, path in enumerate(peer.listed(folder))], [float(share) for share in peer.SHARES])
    pipeline = webdataset.DataPipeline(data, webdataset.map(load), webdataset.batched(config["batch"], torch.utils.data.default_collate, partial=False))
    yield from webdataset.WebLoader(pipeline, batch_size=None, num_workers=config["workers"], persistent_workers=True, prefetch_factor=2)


peer.serve(
    peer.checked(batches),
    f"tar files, {len(peer.listed(os.path.join(config['data'], '0')))} shards of each dataset, drawn with replacement; a buffer of {BUFFER} samples each; "
    f"RandomMix; WebLoader with {config['workers']} worker processes, prefetch factor 2, batched in the workers; decode_jpeg and v2 transforms",
    webdataset=version("webdataset"),
    torch=torch.__version__,
    torchvision=torchvision.__version__,
)
