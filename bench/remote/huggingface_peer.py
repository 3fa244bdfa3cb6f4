"""Hugging Face Datasets: Parquet files in row groups of 100 images, streamed with a buffer of 1000."""

import pathlib

import datasets
import peer
import pyarrow
import pyarrow.parquet
import torch


def write(paths, folder):
    names = []
    for shard, images in enumerate(peer.in_shards(peer.images(paths))):
        names.append(f"{shard:05}.parquet")
        table = pyarrow.table({"image": pyarrow.array(images, pyarrow.binary())})
        pyarrow.parquet.write_table(table, pathlib.Path(folder, names[-1]), row_group_size=100, compression="none")
    pathlib.Path(folder, peer.SHARDS).write_text("\n".join(names))


def read(place, _):
    data = datasets.load_dataset("parquet", data_files={"train": peer.shards(place)}, split="train", streaming=True).shuffle(seed=0, buffer_size=1000)
    return torch.utils.data.DataLoader(data, batch_size=peer.BATCH, num_workers=peer.WORKERS, collate_fn=peer.crop_all, prefetch_factor=2)


if __name__ == "__main__":
    peer.main(write, read)
