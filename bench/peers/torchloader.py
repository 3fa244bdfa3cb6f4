"""PyTorch's DataLoader over the files of a folder, with torchvision's v2 transforms; used by torchdata.py and torchnetwork.py."""

import peer
import numpy
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.io import ImageReadMode, decode_jpeg, decode_png, read_file
from torchvision.transforms import v2


class TorchvisionDecoder:
    """Decodes files with torchvision.io, to tensors."""

    name = "decode_jpeg and decode_png"

    def image(self, path):
        return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)

    def mask(self, path):
        return decode_png(read_file(path), mode=ImageReadMode.GRAY)[0]

    depth = mask


class TorchcodecDecoder:
    """Decodes files with torchcodec, to tensors."""

    name = "torchcodec's decode_jpeg and decode_png"

    def __init__(self):
        from torchcodec import decoders

        self.jpeg, self.png = decoders.decode_jpeg, decoders.decode_png

    def image(self, path):
        return self.jpeg(path, mode="RGB")

    def mask(self, path):
        return self.png(path, mode="GRAY")[0]

    def depth(self, path):
        return self.png(path, mode="GRAY", output_dtype=torch.uint16)[0]


class PillowDecoder:
    """Decodes files with Pillow, to its images; masks and depths to tensors."""

    name = "Pillow images"

    def image(self, path):
        return Image.open(path).convert("RGB")

    def mask(self, path):
        return torch.from_numpy(numpy.array(Image.open(path)))

    depth = mask


class RawDecoder:
    """Reads the pixels of prepare.py: height and width as little-endian uint32, then the pixels. The strides suit v2's uint8 kernels."""

    name = "raw pixels"

    def image(self, path):
        height, width = numpy.fromfile(path, "<u4", 2)
        pixels = numpy.fromfile(path, "u1", offset=8).reshape(height, width, 3)
        return torch.from_numpy(pixels).permute(2, 0, 1)


DECODERS = {"tensor": TorchvisionDecoder, "torchcodec": TorchcodecDecoder, "pillow": PillowDecoder}


def decoder(config):
    return RawDecoder() if config.get("form") == "raw" else DECODERS[config.get("variant", "tensor")]()


def simclr():
    """Colour and blur of SimCLR (Chen et al. 2020, appendix A), with its strength of 1."""
    jitter, blur = v2.ColorJitter(0.8, 0.8, 0.8, 0.2), v2.GaussianBlur(23, sigma=(0.1, 2))
    return [v2.RandomApply([jitter], p=0.8), v2.RandomGrayscale(p=0.2), v2.RandomApply([blur], p=0.5)]


def crop(config, pillow):
    steps = [v2.RandomResizedCrop(config["side"], scale=config.get("scale", (0.08, 1)), antialias=True), v2.RandomHorizontalFlip()]
    steps += simclr() if config.get("simclr") else []
    return steps + ([v2.PILToTensor()] if pillow else [])


def crop_bytes(config, data):
    """Decodes a JPEG file in memory, crops and flips it, for loaders that read files by themselves."""
    image = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB)
    return v2.Compose(crop(config, False))(image)


class Buckets(torch.utils.data.Dataset):
    """Images of form buckets, each covering its bucket: crops first, which is less work than to resize what the crop leaves out."""

    def __init__(self, config):
        self.paths, self.buckets = peer.bucket_files(config["data"])
        self.decoder = decoder(config)
        pillow = isinstance(self.decoder, PillowDecoder)
        self.finish = v2.Compose([v2.RandomHorizontalFlip()] + ([v2.PILToTensor()] if pillow else []))

    def __len__(self):
        return len(self.paths) * peer.EPOCH_REPEAT

    def __getitem__(self, index):
        index %= len(self.paths)
        image, (width, height) = self.decoder.image(self.paths[index]), peer.BUCKETS[self.buckets[index]]
        rows, columns = v2.functional.get_size(image)
        scale = max(width / columns, height / rows)
        size = min(rows, round(height / scale)), min(columns, round(width / scale))
        top, left = (int(torch.randint(whole - part + 1, ())) for whole, part in zip((rows, columns), size))
        return {"image": self.finish(v2.functional.resized_crop(image, top, left, *size, [height, width], antialias=True))}


class BucketBatches(torch.utils.data.Sampler):
    """Batches of one bucket each, shuffled; what is left of a bucket goes on into its next batch."""

    def __init__(self, buckets, batch, count):
        self.buckets, self.batch, self.count = buckets, batch, count

    def __iter__(self):
        waiting = [[] for _ in peer.BUCKETS]
        for index in torch.randperm(self.count).tolist():
            own = waiting[self.buckets[index % len(self.buckets)]]
            own.append(index)
            if len(own) == self.batch:
                yield own[:]
                own.clear()


class Views(torch.utils.data.Dataset):
    """Samples of several crops of one image, as DINO makes them: decodes once. config: data, form, variant, views and simclr."""

    def __init__(self, config):
        self.paths = peer.images(config)
        self.decoder = DECODERS[config["variant"]]()
        pillow = isinstance(self.decoder, PillowDecoder)
        self.transforms = [v2.Compose(crop({**config, "side": side, "scale": area}, pillow)) for side, area in peer.copies(config)]

    def __len__(self):
        return len(self.paths) * peer.EPOCH_REPEAT

    def __getitem__(self, index):
        image = self.decoder.image(self.paths[index % len(self.paths)])
        return [transform(image) for transform in self.transforms]


class Files(torch.utils.data.Dataset):
    """Samples (image, class number). config: data and side; variant, form and scale are optional."""

    def __init__(self, config):
        self.paths, self.labels = peer.files(config["data"])
        self.decoder = decoder(config)
        self.transform = v2.Compose(crop(config, isinstance(self.decoder, PillowDecoder)))

    def __len__(self):
        # Long epochs, so that the pause between epochs does not matter.
        return len(self.paths) * peer.EPOCH_REPEAT

    def __getitem__(self, index):
        index %= len(self.paths)
        return self.transform(self.decoder.image(self.paths[index])), self.labels[index]


class Samples(torch.utils.data.Dataset):
    """Structured samples, dictionaries of tensors. config: data, side, form and variant."""

    def __init__(self, config):
        columns = peer.samples(config["data"], config["form"])
        self.paths = {name: columns[name] for name in ("image", "mask", "depth") if name in columns}
        # Arrays, not lists: reading them does not copy pages of the worker processes.
        self.rows = {name: [torch.tensor(rows) for rows in columns[name]] for name in ("boxes", "class") if name in columns}
        self.decoder = decoder(config)
        sanitize = [v2.SanitizeBoundingBoxes(labels_getter=lambda sample: sample["class"])] if self.rows else []
        self.transform = v2.Compose(crop(config, isinstance(self.decoder, PillowDecoder)) + sanitize)

    def __len__(self):
        return len(self.paths["image"]) * peer.EPOCH_REPEAT

    def __getitem__(self, index):
        index %= len(self.paths["image"])
        image = self.decoder.image(self.paths["image"][index])
        sample = {"image": image if isinstance(image, Image.Image) else tv_tensors.Image(image)}
        if "mask" in self.paths:
            sample["mask"] = tv_tensors.Mask(self.decoder.mask(self.paths["mask"][index]))
        if "depth" in self.paths:
            # PyTorch resizes no uint16.
            sample["depth"] = tv_tensors.Image(self.decoder.depth(self.paths["depth"][index]).to(torch.float32))
        if self.rows:
            size = (image.height, image.width) if isinstance(image, Image.Image) else tuple(image.shape[-2:])
            boxes = self.rows["boxes"][index].reshape(-1, 4)
            sample["boxes"] = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size)
            sample["class"] = self.rows["class"][index].to(torch.int64)
        sample = self.transform(sample)
        if "depth" in sample:
            sample["depth"] = sample["depth"].round_().to(torch.uint16)
        return sample


def collate(samples):
    """Makes a batch. The rows of boxes go from process to process as one tensor with the number of each sample's, which is faster than a tensor for each."""
    batch = {name: torch.stack([sample[name] for sample in samples]) for name in ("image", "mask", "depth") if name in samples[0]}
    for name in ("boxes", "class"):
        if name in samples[0]:
            rows = [sample[name] for sample in samples]
            batch[name] = (torch.cat(rows), [len(part) for part in rows])
    return batch


def split_rows(batch):
    return {name: list(value[0].split(value[1])) if isinstance(value, tuple) else value for name, value in batch.items()}


def bucket_batches(config):
    dataset = Buckets(config)
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_sampler=BucketBatches(dataset.buckets, config["batch"], len(dataset)),
        num_workers=config["workers"],
        persistent_workers=True,
        prefetch_factor=2,
    )
    while True:
        yield from loader


def batches(config, **more):
    """Yields (images [n][3][side][side] of bytes, labels [n]) without end, or dictionaries of structured samples."""
    if config.get("form") == "buckets":
        yield from bucket_batches(config)
        return
    structured = "form" in config and peer.is_structured(config)
    if structured:
        more["collate_fn"] = collate
    loader = torch.utils.data.DataLoader(
        Samples(config) if structured else Views(config) if "views" in config else Files(config),
        batch_size=config["batch"],
        shuffle=True,
        drop_last=True,
        num_workers=config["workers"],
        persistent_workers=True,
        prefetch_factor=2,
        **more,
    )
    while True:
        yield from map(split_rows, loader) if structured else loader
