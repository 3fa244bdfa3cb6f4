"""Tests python -m loaderd.convert with the projects whose formats it reads. Each project writes a dataset of the same images and reads it
back; the converted dataset must have the same contents. The programs are in $PACKIMG and $PACKIMG_IMAGES, the package in $PYTHONPATH.

    converters.py NAME      NAME: arrow, tfrecord, mds, litdata, ffcv, coco
"""

import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PACKIMG, IMAGES = os.environ["PACKIMG"], os.environ["PACKIMG_IMAGES"]
COUNT = 24


def convert(source, out):
    subprocess.run([sys.executable, "-m", "loaderd.convert", source, out], check=True)


def stored(path):
    """Returns [(bytes of the file, label, fields)] of a converted dataset."""
    samples = [json.loads(line) for line in subprocess.run([PACKIMG, "list", "--json", path], check=True, stdout=subprocess.PIPE).stdout.splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([PACKIMG, "extract", "-q", "--manifest", path, "-o", folder], check=True, stdout=subprocess.DEVNULL)
        with open(pathlib.Path(folder) / "manifest.csv", newline="", encoding="latin-1") as file:
            files = [(pathlib.Path(folder) / row["path"]).read_bytes() for row in csv.DictReader(file)]
    return [(data, sample["label"], sample.get("fields", {})) for data, sample in zip(files, samples)]


def compare(path, expected):
    found = stored(path)
    assert len(found) == len(expected), f"{path}: {len(found)} samples, not {len(expected)}"
    for i, (one, other) in enumerate(zip(found, expected)):
        assert one == other, f"{path}: sample {i}: {str(one[1:])} of {len(one[0])} bytes, not {str(other[1:])} of {len(other[0])}"
    print(f"{path.name}: {len(found)} samples are equal")


def rows(files):
    for i, file in enumerate(files[:COUNT]):
        yield {"image": file.read_bytes(), "label": i % 3, "score": i / 4, "text": f"é {i}", "box": [float(i), 0.5]}


def arrow(work, files):
    """Hugging Face's datasets: Parquet files, and the output of save_to_disk()."""
    import datasets

    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"]), "score": datasets.Value("float32"),
                                  "text": datasets.Value("string"), "box": datasets.Sequence(datasets.Value("float64"))})
    listed = [{**row, "image": {"bytes": row["image"], "path": None}} for row in rows(files)]
    data = datasets.Dataset.from_list(listed, features=features)
    data.to_parquet(str(work / "data.parquet"))
    data.save_to_disk(str(work / "saved"))
    datasets.DatasetDict({"train": data, "test": data.select(range(5))}).save_to_disk(str(work / "splits"))
    plain = data.cast_column("image", datasets.Image(decode=False))
    expected = [(row["image"]["bytes"], row["label"], {"score": row["score"], "text": row["text"], "box": row["box"]}) for row in plain]
    for name in ("data.parquet", "saved", "splits"):
        convert(work / name, work / f"{name.split('.')[0]}.pimg")
    for name, count in (("data", COUNT), ("saved", COUNT), ("splits-train", COUNT), ("splits-test", 5)):
        compare(work / f"{name}.pimg", expected[:count])


def tfrecord(work, files):
    import tensorflow

    def feature(value):
        if isinstance(value, list):
            return tensorflow.train.Feature(float_list=tensorflow.train.FloatList(value=value))
        if isinstance(value, int):
            return tensorflow.train.Feature(int64_list=tensorflow.train.Int64List(value=[value]))
        if isinstance(value, float):
            return tensorflow.train.Feature(float_list=tensorflow.train.FloatList(value=[value]))
        return tensorflow.train.Feature(bytes_list=tensorflow.train.BytesList(value=[value if isinstance(value, bytes) else value.encode()]))

    with tensorflow.io.TFRecordWriter(str(work / "data.tfrecord")) as writer:
        for row in rows(files):
            example = tensorflow.train.Example(features=tensorflow.train.Features(feature={name: feature(value) for name, value in row.items()}))
            writer.write(example.SerializeToString())
    shape = {"image": tensorflow.io.FixedLenFeature([], tensorflow.string), "label": tensorflow.io.FixedLenFeature([], tensorflow.int64),
             "score": tensorflow.io.FixedLenFeature([], tensorflow.float32), "text": tensorflow.io.FixedLenFeature([], tensorflow.string),
             "box": tensorflow.io.FixedLenFeature([2], tensorflow.float32)}
    expected = []
    for record in tensorflow.data.TFRecordDataset(str(work / "data.tfrecord")):
        row = {name: value.numpy() for name, value in tensorflow.io.parse_single_example(record, shape).items()}
        expected.append((row["image"], int(row["label"]), {"box": row["box"].tolist(), "score": float(row["score"]), "text": row["text"].decode()}))
    convert(work / "data.tfrecord", work / "data.pimg")
    compare(work / "data.pimg", expected)


def mds(work, files):
    from streaming import LocalDataset, MDSWriter

    columns = {"image": "bytes", "label": "int", "score": "float64", "text": "str", "box": "json", "code": "pkl"}
    with MDSWriter(out=str(work / "mds"), columns=columns) as writer:
        for row in rows(files):
            writer.write({**row, "code": {"a": 1}})
    expected = [(row["image"], int(row["label"]), {"score": float(row["score"]), "text": row["text"], "box": row["box"]}) for row in LocalDataset(str(work / "mds"))]
    convert(work / "mds", work / "mds.pimg")
    found = stored(work / "mds.pimg")
    for _, _, fields in found:
        fields.pop("code", None)  # stays bytes, because the converter runs no pickles
    assert found == expected, "mds: samples differ"
    print(f"mds: {len(found)} samples are equal")


def chunk_sample(numbered):
    """Makes a sample, in litData's own processes."""
    from PIL import Image

    i, file = numbered
    return {"image": Image.open(file), "label": i % 3, "text": f"é {i}"}


def litdata(work, files):
    import litdata as library

    library.optimize(fn=chunk_sample, inputs=list(enumerate(files[:COUNT])), output_dir=str(work / "chunks"), chunk_bytes="1MB", num_workers=1)
    own = library.StreamingDataset(str(work / "chunks"), shuffle=False)
    expected = [(files[i].read_bytes(), int(own[i]["label"]), {"text": own[i]["text"]}) for i in range(len(own))]
    convert(work / "chunks", work / "chunks.pimg")
    compare(work / "chunks.pimg", expected)


def of_one_size(files):
    """Returns [(pixels, number)] of the images that FFCV's loader can return whole."""
    import numpy
    from PIL import Image

    return [(numpy.array(Image.open(file).convert("RGB").resize((64, 48))), i) for i, file in enumerate(files[:COUNT])]


def ffcv(work, files):
    """JPEGs, raw pixels and a field of each kind, compared with FFCV's loader."""
    import io

    import numpy
    import torch
    from ffcv import libffcv
    from ffcv.fields import BytesField, FloatField, IntField, JSONField, NDArrayField, RGBImageField, TorchTensorField
    from ffcv.loader import Loader, OrderOption
    from ffcv.writer import DatasetWriter
    from PIL import Image

    images = of_one_size(files)

    class Samples:
        def __len__(self):
            return len(images)

        def __getitem__(self, i):
            pixels, number = images[i]
            return (pixels, number % 3, number / 4, numpy.frombuffer(f"é {number}".encode(), "uint8"), {"a": [number]},
                    numpy.arange(6, dtype="float32").reshape(2, 3) + number, torch.tensor([number, -number]))

    for mode in ("jpg", "raw"):
        path = work / f"{mode}.beton"
        fields = {"image": RGBImageField(write_mode=mode), "label": IntField(), "score": FloatField(), "text": BytesField(), "more": JSONField(),
                  "box": NDArrayField(numpy.dtype("float32"), (2, 3)), "pair": TorchTensorField(torch.int64, (2,))}
        DatasetWriter(str(path), fields, num_workers=1).from_indexed_dataset(Samples())
        own = next(iter(Loader(str(path), batch_size=COUNT, num_workers=1, order=OrderOption.SEQUENTIAL)))
        own = [value.numpy() if hasattr(value, "numpy") else value for value in own]
        convert(path, work / f"{mode}.pimg")
        found = stored(work / f"{mode}.pimg")
        assert len(found) == COUNT
        for i, (data, label, given) in enumerate(found):
            pixels, wanted_label, score, _, _, box, pair = (value[i] for value in own)
            if mode == "raw":
                decoded = numpy.array(Image.open(io.BytesIO(data)))
            else:  # FFCV decodes with another decoder, which rounds differently
                decoded = numpy.zeros_like(pixels)
                libffcv.imdecode(numpy.frombuffer(data, "uint8"), decoded, *decoded.shape[:2], *decoded.shape[:2], 0, 0, 1, 1, False, False)
            assert (decoded == pixels).all(), f"{mode}: sample {i}: pixels differ by up to {abs(decoded.astype(int) - pixels).max()}"
            text = given["text"]["hex"] if isinstance(given["text"], dict) else given["text"]
            assert text == f"é {i}".encode().hex() or text == f"é {i}", text
            assert (label, given["score"], given["more"], given["box"], given["pair"]) == (
                wanted_label.item(), score.item(), JSONField.unpack(own[4][i]), box.tolist(), pair.tolist()), given
        print(f"{mode}.beton: {len(found)} samples are equal")


def shape(random, width, height):
    """Returns a segmentation in COCO's format: polygons, or run lengths of a noisy mask, compressed or not."""
    import numpy
    from pycocotools import mask

    kind = random.choice(("polygons", "list", "text"))
    if kind == "polygons":
        return [[round(random.uniform(-3, side + 3), 2) for _ in range(random.randint(3, 12)) for side in (width, height)] for _ in range(random.randint(1, 2))]
    inside = numpy.zeros((height, width), "uint8")
    inside[random.randrange(height) :, random.randrange(width) :] = [[random.random() < 0.9]]
    inside ^= numpy.array([[random.random() < 0.02 for _ in range(width)] for _ in range(height)], "uint8")
    if kind == "text":
        coded = mask.encode(numpy.asfortranarray(inside))
        return {"size": coded["size"], "counts": coded["counts"].decode()}
    flat = numpy.concatenate([[0], inside.T.ravel(), [2]])
    ends = numpy.flatnonzero(flat[1:] != flat[:-1])
    return {"size": [height, width], "counts": numpy.diff([0, *ends]).tolist()}


def coco(work, files):
    """Masks of instances equal pycocotools' masks; where objects overlap, the one with the fewest pixels wins."""
    from random import Random

    import numpy
    from PIL import Image
    from pycocotools.coco import COCO

    random = Random(1)
    images, annotations = [], []
    for i, file in enumerate(files[:COUNT]):
        with Image.open(file) as opened:
            images.append({"id": i, "file_name": f"{i}.jpg", "width": opened.width, "height": opened.height})
        (work / f"{i}.jpg").write_bytes(file.read_bytes())
        for _ in range(random.randint(0, 8)):
            annotations.append({"id": len(annotations) + 1, "image_id": i, "category_id": 1, "bbox": [0, 0, 1, 1], "iscrowd": random.randrange(2),
                                "segmentation": shape(random, opened.width, opened.height)})
    path = work / "some.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "a"}]}))
    convert(path, work / "coco.pimg")
    subprocess.run([PACKIMG, "extract", "-q", work / "coco.pimg", "-o", work / "back"], check=True)
    own = COCO(str(path))
    for image in images:
        found = numpy.asarray(Image.open(next((work / "back").rglob(f"{image['id']}.instances.*"))))
        masks = [own.annToMask(item) for item in own.loadAnns(own.getAnnIds(imgIds=[image["id"]]))]
        crowds = [item["iscrowd"] for item in own.loadAnns(own.getAnnIds(imgIds=[image["id"]]))]
        wanted = numpy.zeros((image["height"], image["width"]), "uint8")
        for number in sorted(range(len(masks)), key=lambda number: (not crowds[number], -int(masks[number].sum()))):
            wanted[masks[number] == 1] = number + 1
        assert (found == wanted).all(), f"coco: image {image['id']}: {(found != wanted).sum()} pixels differ"
    print(f"coco: the masks of {len(annotations)} objects are equal")


SOURCES = {"coco": coco, "ffcv": ffcv, "arrow": arrow, "tfrecord": tfrecord, "mds": mds, "litdata": litdata}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="converters-") as folder:
        subprocess.run([IMAGES, os.path.join(folder)], check=True)
        SOURCES[sys.argv[1]](pathlib.Path(folder), sorted((pathlib.Path(folder) / "tree").rglob("*.jpg")))
