"""Mosaic Streaming: a StreamingDataset of two streams by proportions, in PyTorch's DataLoader, with torchvision's decoder and v2 transforms."""

import peer
import streaming
import torch
import torchloader
import torchvision
from streaming.base.util import clean_stale_shared_memory

config = peer.config()
torch.set_num_threads(1)
clean_stale_shared_memory()


class Mixed(streaming.StreamingDataset):
    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return {"image": torchloader.crop_bytes(config, sample["image"]), "part": sample["part"]}


def batches(folder):
    streams = [streaming.Stream(local=part, proportion=share / sum(peer.SHARES)) for part, share in zip(peer.listed(folder), peer.SHARES)]
    size = peer.EPOCH_REPEAT * sum(len(streaming.StreamingDataset(local=part, batch_size=1)) for part in peer.listed(folder))
    dataset = Mixed(streams=streams, epoch_size=size, shuffle=True, batch_size=config["batch"])
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=config["batch"], drop_last=True, num_workers=config["workers"], persistent_workers=True, prefetch_factor=2
    )
    while True:
        yield from loader


peer.serve(
    peer.checked(batches),
    f"MDS files; two streams by proportion, shuffled (py1e); DataLoader with {config['workers']} persistent worker processes, prefetch factor 2; "
    "decode_jpeg and v2 transforms",
    streaming=streaming.__version__,
    torch=torch.__version__,
    torchvision=torchvision.__version__,
)
