"""Mosaic Streaming: MDS shards, copied to the cache."""

import peer
import streaming
import torch
from streaming.base.util import clean_stale_shared_memory


def write(paths, folder):
    with streaming.MDSWriter(out=folder, columns={"image": "bytes"}, exist_ok=True) as writer:
        for image in peer.images(paths):
            writer.write({"image": image})


class Images(streaming.StreamingDataset):
    def __getitem__(self, index):
        return peer.crop(super().__getitem__(index)["image"])


def read(place, cache):
    clean_stale_shared_memory()
    data = Images(remote=place, local=cache, shuffle=True, batch_size=peer.BATCH)
    return torch.utils.data.DataLoader(data, batch_size=peer.BATCH, num_workers=peer.WORKERS, prefetch_factor=2)


if __name__ == "__main__":
    peer.main(write, read)
