"""WebDataset: tar shards, read by curl."""

import io
import pathlib
import tarfile

import peer
import webdataset
from torch.utils.data import default_collate


def write(paths, folder):
    names = []
    for shard, images in enumerate(peer.in_shards(enumerate(peer.images(paths)))):
        names.append(f"{shard:05}.tar")
        with tarfile.open(pathlib.Path(folder, names[-1]), "w") as tar:
            for number, image in images:
                info = tarfile.TarInfo(f"{number:07}.jpg")
                info.size = len(image)
                tar.addfile(info, io.BytesIO(image))
    pathlib.Path(folder, peer.SHARDS).write_text("\n".join(names))


def read(place, _):
    shards = [f"pipe:curl -s -L -f {url}" for url in peer.shards(place)]
    data = webdataset.WebDataset(shards, shardshuffle=100).shuffle(1000).map(lambda sample: peer.crop(sample["jpg"]))
    return webdataset.WebLoader(data.batched(peer.BATCH, default_collate), batch_size=None, num_workers=peer.WORKERS, prefetch_factor=2)


if __name__ == "__main__":
    peer.main(write, read)
