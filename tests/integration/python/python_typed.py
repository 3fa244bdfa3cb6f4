"""The public names as a user's type checker sees them: with mypy --strict, and with the expected types. Checked by python_types.py, never
executed.
"""

import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import loaderd
from loaderd import (
    Argument,
    Batch,
    BatchSampler,
    Daemon,
    DataLoader,
    Dataset,
    Feed,
    FeedError,
    Field,
    ImageDataset,
    OpenedBucket,
    OpenedPart,
    Part,
    Ragged,
    Tensors,
    Timings,
    Transform,
)

assert_type(loaderd.__version__, str)
assert_type(loaderd.SUBSTITUTED | loaderd.FIELD_MISSING | loaderd.FIELD_CUT, int)


def options(path: Path) -> Feed:
    return Feed(
        path, pipeline="", batch_size=8, shuffle=True, seed=1, epoch=0, batch=0, epoch_end=None, rank="auto", world=None, drop_last=True, last=None,
        bad="fail", slots=4, values=["boxes"], fields=["a", loaderd.KEY, loaderd.DEFERRED], field_bytes=8, cut_values=True, repeats=2,
        wanted=False, name="", writable=False, timeout=1.5, reconnect=None, socket=None,
        daemon="private", threads=2, settings={"io.mode": "mmap", "limits.slots": 9, "access.writable_rings": False},
    )  # fmt: skip


def order(path: Path) -> None:
    sizes = loaderd.bucket_sizes(1 << 20, step=64, ratio=(0.5, 2.0))
    assert_type(sizes, List[Tuple[int, int]])
    feed = Feed([Part(path, share=3, where="width > 8"), Part("x.pimg", share={0: 1, 9: 2.5})], epoch_samples=50, ends="last", mix="batch")
    assert_type(feed.parts, Sequence[OpenedPart])
    feed = Feed(Part(path, samples=[1, 2]), pipeline="bucket_resize", buckets=sizes)
    assert_type(feed.buckets, Sequence[OpenedBucket])


def ragged(boxes: Ragged) -> None:
    assert_type((len(boxes), boxes[0], boxes.values), Tuple[int, npt.NDArray[Any], npt.NDArray[Any]])


def polygons(rows: npt.NDArray[Any]) -> None:
    assert_type(loaderd.split_polygons(rows), List[List[npt.NDArray[Any]]])
    assert_type(loaderd.join_polygons(loaderd.split_polygons(rows)), List[Tuple[float, float]])
    loaderd.join_polygons([[1.0, 2.0]])  # type: ignore[list-item]


def batches(feed: Feed) -> None:
    for batch in feed:
        assert_type(batch, Batch)
        assert_type(batch.images, npt.NDArray[Any])
        assert_type(batch.labels, npt.NDArray[np.int32])
        assert_type(batch.samples, npt.NDArray[np.uint64])
        assert_type(batch.flags, npt.NDArray[np.uint8])
        assert_type((batch.number, batch.epoch, batch.index, batch.count, batch.bad), Tuple[int, int, int, int, int])
        assert_type((batch.element, batch.layout, batch.last), Tuple[str, str, bool])
        images, labels = batch
        assert_type(images, npt.NDArray[Any])
        assert_type(batch["caption"], Any)
        assert_type((batch.keys(), "caption" in batch), Tuple[Tuple[str, ...], bool])
        assert_type(batch.value("boxes"), Any)
        assert_type(batch.tensors(), Dict[str, Any])
        assert_type(batch.torch(), Tensors)
        assert_type(batch.to("cuda"), Tensors)
        assert_type(batch.buffer("images").shape, Tuple[int, ...])
        with batch:
            batch.release()
    assert_type(feed.next(timeout=0.5), Optional[Batch])
    assert_type(next(feed), Batch)
    assert_type((len(feed), feed.samples, feed.classes, feed.slots, feed.reconnects, feed.fileno()), Tuple[int, int, int, int, int, int])
    assert_type((feed.uuid, feed.socket, feed.daemon), Tuple[Optional[str], Optional[str], Optional[Daemon]])
    assert_type(feed.position, Tuple[int, int])
    assert_type(feed.state_dict(), Dict[str, Any])
    feed.load_state_dict(feed.state_dict(), strict=False)
    feed.set_epoch(3)
    feed.reset()
    with feed:
        feed.pin()


def wanted(feed: Feed) -> None:
    feed.want(3, [1, 2, 3])
    feed.want(3, np.arange(3))
    feed.forget()


def daemons() -> None:
    with Daemon(threads=2, binary=Path("loaderd"), settings={"io.mode": "mmap"}) as daemon:
        assert_type((daemon.socket, daemon.pid, daemon.alive, daemon.log), Tuple[str, int, bool, str])
        os.environ["LOADERD_SOCKET"] = daemon.socket
        daemon.restart()


def facts(dataset: Dataset) -> None:
    assert_type(loaderd.dataset("x.pimg"), Dataset)
    assert_type((dataset.samples, dataset.metadata), Tuple[int, str])
    assert_type(dataset.mean, Optional[Tuple[float, float, float]])
    assert_type(dataset.fields, Mapping[str, Field])
    assert_type((dataset.fields["a"].type, dataset.fields["a"].longest), Tuple[str, Optional[int]])


def loaders() -> None:
    dataset = ImageDataset(
        Path("x.pimg"), "resize(64)", seed=1, transform=abs, batch_transform=None, numpy=True, transform_workers=2, transform_processes=True,
        multiprocessing_context="spawn", as_dict={"image": "x"}, fields=["a"], bad="fail", slots=4, field_bytes=8, cut_values=True, name="",
        timeout=1.5, reconnect=False, socket=None, daemon="private", threads=2, settings={"io.mode": "mmap"},
    )  # fmt: skip
    assert_type((len(dataset), dataset.classes, dataset.class_to_idx), Tuple[int, List[str], Dict[str, int]])
    assert_type((dataset.facts, dataset.uuid, dataset.timings), Tuple[Dataset, Optional[str], Timings])
    dataset.set_epoch(3)
    dataset.close()
    loader = DataLoader(
        dataset, batch_size=8, shuffle="daemon", num_workers=4, pin_memory=True, drop_last=True, timeout=3, prefetch_factor=2,
        persistent_workers=True, collate_fn=list, worker_init_fn=None, generator=None,
    )  # fmt: skip
    assert_type((len(loader), loader.timings, loader.state_dict()), Tuple[int, Timings, Dict[str, Any]])
    loader.load_state_dict(loader.state_dict())
    loader.set_epoch(2)
    sampler = BatchSampler(range(4), 2, drop_last=False)
    sampler.set_epoch(1)
    assert_type(sampler.epoch, int)
    for samples in sampler:
        assert_type(samples[0], int)
    DataLoader("x.pimg", pipeline="resize(64)", batch_sampler=sampler)
    loaderd.DatasetWarning


def errors() -> None:
    try:
        Feed("x.pimg")
    except FileNotFoundError:
        pass
    except FeedError as error:
        assert_type(error.code, int)


def mistakes(feed: Feed) -> None:
    """Each line must be an error for the checker; an unnecessary ignore is an error too."""
    Feed("x.pimg", batch_size="8")  # type: ignore[arg-type]
    Feed("x.pimg", rank="all")  # type: ignore[arg-type]
    Daemon(settings={"io.mode": 1.5})  # type: ignore[dict-item]
    feed.batch  # type: ignore[attr-defined]


def steps() -> None:
    for step in loaderd.pipelines():
        assert_type(step, Transform)
        assert_type((step.name, step.text, step.signature), Tuple[str, str, str])
        for argument in step.arguments:
            assert_type(argument, Argument)
            assert_type((argument.name, argument.form, argument.values, argument.required), Tuple[str, str, str, bool])
            assert_type((argument.minimum, argument.maximum), Tuple[Optional[float], Optional[float]])
            assert_type((argument.words, argument.default), Tuple[Tuple[str, ...], Optional[str]])


def writing() -> None:
    with loaderd.Writer("x.pimg", {"image": "image u8[h,w,3]", "age": "value i32"}, classes=["cat", "dog"], on_error="skip") as writer:
        writer.add({"image": b"", "age": 3})
        assert_type(writer.copy(range(3), map=lambda item: {"image": item}), int)
    assert_type(len(writer), int)
    assert_type(writer.skipped, List[Tuple[int, str, str]])
    loaderd.Writer("x.pimg", quality="high")  # type: ignore[arg-type]
