"""The order of a feed: which samples of which datasets it draws, and how often."""

import os
from array import array
from fractions import Fraction
from hashlib import sha256
from math import gcd, isfinite
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from ._checks import choice, number, text
from ._errors import BadOption

_ENDS = {"first": 0, "last": 1}
_MIX = {"sample": 0, "batch": 1}
_ORDERS = {"samples": 0, "blocks": 1}
_SHARES_MAX = 65536  # sum of the shares, MIXTURE_SHARES_MAX of the daemon

# What changes in training is given as {batch: value}: the value from that batch over all ranks on, counted from epoch 0.
Share = Union[int, float, Mapping[int, Union[int, float]]]
Path = Union[str, bytes, "os.PathLike[str]"]


class Part:
    """A dataset, and which of its samples a feed draws, and how often: Feed([Part("a.pimg", share=3), Part("b.pimg")]).

    dataset            path of a .pimg file or set of shards, or an address in a store
    share              share of this part in the mixture: of every period of as many samples as the sum of all shares, exactly this many.
                       Fractions are scaled to whole numbers, which sum to at most 65,536. {batch: share} changes it in training
    where              a filter over the samples, such as 'width >= 200 and label in (1, 5)', see loaderd(1), FILTERS
    samples            numbers of the only samples to draw, in this order unless shuffled, as often as they are listed
    weights            draw with replacement, in proportion to these weights: one for each of `samples`, or else for each sample of the
                       dataset. {batch: weights} changes them in training
    class_weights      the same, by a weight of each sample of a class: one for each class, or {name: weight}, 1 for classes that are not
                       named; or "balanced": every class is equally likely. {batch: weights} changes them in training
    classes_per_batch  each batch over all ranks has as many samples of each of so many classes. Only alone, not in a mixture
    """

    def __init__(
        self,
        dataset: Path,
        share: Share = 1,
        *,
        where: str = "",
        samples: Any = None,
        weights: Any = None,
        class_weights: Any = None,
        classes_per_batch: int = 0,
    ) -> None:
        self.dataset = os.fsdecode(dataset)
        self.share = share
        self.where = text("where", where)
        self.samples = samples
        self.weights = weights
        self.class_weights = class_weights
        self.classes_per_batch = number("classes_per_batch", classes_per_batch, 32)

    def __repr__(self) -> str:
        return f"<loaderd.Part {self.dataset}, share {self.share}>"

    def chooses(self) -> bool:
        """Returns true unless the part is drawn as a dataset without more ado."""
        lists = (self.samples, self.weights, self.class_weights)
        return bool(self.where) or self.classes_per_batch > 0 or any(one is not None for one in lists)


class OpenedPart(NamedTuple):
    """A part as the daemon has opened it: Feed.parts."""

    dataset: str  #: its path
    first: int  #: number of the part's sample 0 in Batch.samples
    samples: int  #: samples in its dataset
    chosen: int  #: samples, or entries of `samples`, that are drawn from
    uuid: Optional[str]  #: UUID of its content


class Order(NamedTuple):
    """The order of a feed, in the form that _feed.Stream takes, and as a state_dict() keeps it."""

    native: Tuple[Any, ...]
    paths: Tuple[str, ...]
    described: Mapping[str, Any]
    needs_batch: bool  # positions mean something else with another batch size times world

    def with_blocks(self, blocks: "Blocks") -> "Order":
        """Returns the same order with other blocks."""
        described = {key: value for key, value in self.described.items() if key != "blocks"}
        if blocks.samples:
            described["blocks"] = list(blocks)
        return self._replace(native=(*self.native[:-2], *blocks), described=described)


class Blocks(NamedTuple):
    """Samples of a block, and blocks of a group; zeros without blocks."""

    samples: int
    blocks: int


def blocks_of(order: str, block_samples: int, group_blocks: int, parts: int, suggested: Callable[[], Tuple[int, int]]) -> Blocks:
    """Returns the blocks of an order. suggested(): returns those for the first part, which is asked for only if one of both is not given; a
    group of each of the parts is read at a time, so that they share what it suggests."""
    given = Blocks(number("block_samples", block_samples, 32), number("group_blocks", group_blocks, 32))
    if not choice("order", order, _ORDERS):
        if any(given):
            raise BadOption('block_samples, group_blocks: need order="blocks"', 22)
        return given
    if all(given):
        return given
    samples, blocks = suggested()
    chosen = given.samples or max(1, samples)
    return Blocks(chosen, given.blocks or max(1, samples * blocks // (chosen * parts)))


def _number_of(kind: str, value: Any, name: str) -> bytes:
    """Converts an array, a tensor or a sequence to bytes of u64 ("Q") or f32 ("f")."""
    if hasattr(value, "detach"):  # a tensor of PyTorch
        value = value.detach().cpu().numpy()
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        import numpy

        found = numpy.asarray(value)
        if found.ndim != 1:
            raise BadOption(f"{name}: has {found.ndim} dimensions; give a list of numbers", 22)
        if kind == "Q" and found.dtype.kind not in "iu":
            hint = "; numpy.flatnonzero() turns a mask into sample numbers" if found.dtype.kind == "b" else ""
            raise TypeError(f"{name}: is an array of {found.dtype}, not of whole numbers{hint}")
        if kind == "Q" and found.size and found.min() < 0:
            raise BadOption(f"{name}: {found.min()} is negative", 22)
        return bytes(numpy.ascontiguousarray(found, dtype=numpy.uint64 if kind == "Q" else numpy.float32))
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name}: {value!r} is not a list of numbers")
    try:
        return array(kind, value).tobytes()
    except (TypeError, OverflowError, ValueError) as error:
        raise BadOption(f"{name}: is not a list of {'sample numbers' if kind == 'Q' else 'numbers'}: {error}", 22) from None


def _is_schedule(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, int) for key in value)


def _schedule(value: Any, name: str) -> Dict[int, Any]:
    """Returns {batch: value} for a value, or for one that changes."""
    if not _is_schedule(value):
        return {0: value}
    if 0 not in value:
        raise BadOption(f"{name}: says nothing of batch 0, at which training begins", 22)
    return {number(name, key, 64): value[key] for key in sorted(value)}


def _at(schedule: Mapping[int, Any], batch: int) -> Any:
    """Returns the value that is in force at a batch."""
    return schedule[max(begin for begin in schedule if begin <= batch)]


def _whole_shares(shares: Sequence[Any]) -> Tuple[int, ...]:
    """Scales shares to whole numbers whose sum the daemon takes."""
    exact = []
    for share in shares:
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not isfinite(share) or share < 0:
            raise BadOption(f"share: {share!r} is not a number of at least 0", 22)
        exact.append(Fraction(str(share)))
    total = sum(exact)
    if total == 0:
        raise BadOption("share: the shares of all parts are 0", 22)
    scale = 1
    for one in exact:
        scale = scale * one.denominator // gcd(scale, one.denominator)
    divisor = gcd(*(int(one * scale) for one in exact))
    whole = [int(one * scale) // divisor for one in exact]
    if sum(whole) > _SHARES_MAX:
        # The nearest shares with that sum; a part with a share keeps one.
        whole = [max(int(one * (_SHARES_MAX - len(exact)) / total), 1 if one else 0) for one in exact]
    return tuple(whole)


def _class_weights(value: Any, names: Callable[[], Sequence[str]]) -> bytes:
    if not isinstance(value, Mapping):
        return _number_of("f", value, "class_weights")
    known = names()
    for name in value:
        if name not in known:
            raise BadOption(f"class_weights: the dataset has no class {name!r}", 22)
    return _number_of("f", [value.get(name, 1.0) for name in known], "class_weights")


def _digest(data: Optional[bytes]) -> Optional[str]:
    return None if data is None else sha256(data).hexdigest()[:16]


class _Lists(NamedTuple):
    """The lists of a part, as bytes."""

    samples: Optional[bytes]
    weights: Optional[bytes]
    class_weights: Optional[bytes]
    balanced: bool


def _rows(value: Any, name: str, batches: Sequence[int], convert: Callable[[Any], bytes]) -> Optional[bytes]:
    """Returns the values of all stages one after the other, or the only one if it does not change."""
    if value is None:
        return None
    schedule = _schedule(value, name)
    converted = {begin: convert(one) for begin, one in schedule.items()}
    if len(schedule) == 1:
        return converted[0]
    if len({len(one) for one in converted.values()}) > 1:
        raise BadOption(f"{name}: has lists of different lengths", 22)
    return b"".join(_at(converted, batch) for batch in batches)


def _lists(part: Part, batches: Sequence[int], names: Callable[[], Sequence[str]]) -> _Lists:
    balanced = isinstance(part.class_weights, str)
    if balanced:
        choice("class_weights", part.class_weights, {"balanced": 1})
    return _Lists(
        None if part.samples is None else _number_of("Q", part.samples, "samples"),
        _rows(part.weights, "weights", batches, lambda one: _number_of("f", one, "weights")),
        None if balanced else _rows(part.class_weights, "class_weights", batches, lambda one: _class_weights(one, names)),
        balanced,
    )


def _batches(parts: Sequence[Part]) -> List[int]:
    """Returns the batches at which something changes, from 0 on."""
    found = {0}
    for part in parts:
        for value in (part.share, part.weights, part.class_weights):
            if _is_schedule(value):
                found.update(value)
    return sorted(found)


def make(
    parts: Sequence[Part], ends: str, epoch_samples: int, mix: str, buckets: Tuple[Tuple[int, int, int], ...], packs: Tuple[int, str, int],
    names: Callable[[str], Sequence[str]],
) -> Order:
    """Returns an order. packs: batch_tokens, tokens_field and batch_size. names(path): returns the class names of a dataset, which are asked for only if weights have names."""
    batches = _batches(parts)
    shares = [_schedule(part.share, "share") for part in parts]
    several = len(parts) > 1
    stages = tuple((batch, _whole_shares([_at(one, batch) for one in shares]) if several else ()) for batch in batches)
    native, described = [], []
    for part in parts:
        lists = _lists(part, batches, lambda path=part.dataset: names(path))  # type: ignore[misc]
        native.append((
            os.fsencode(part.dataset), part.where, lists.samples, lists.weights, lists.class_weights, lists.balanced, part.classes_per_batch,
        ))  # fmt: skip
        described.append({
            "where": part.where, "samples": _digest(lists.samples), "weights": _digest(lists.weights),
            "class_weights": "balanced" if lists.balanced else _digest(lists.class_weights),
            "classes_per_batch": part.classes_per_batch,
        })  # fmt: skip
    by_batch = choice("mix", mix, _MIX)
    return Order(
        (tuple(native), stages, choice("ends", ends, _ENDS), number("epoch_samples", epoch_samples, 64), bool(by_batch), buckets, *packs[:2], 0, 0),
        tuple(part.dataset for part in parts),
        {"parts": described, "stages": [list(map(list_of, stage)) for stage in stages], "mix": mix, "buckets": [list(size[:2]) for size in buckets],
         "packs": list(packs) if packs[0] else []},
        by_batch > 0 or len(batches) > 1 or bool(buckets) or any(part.classes_per_batch for part in parts),
    )


def list_of(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _say(value: Any) -> str:
    return "nothing" if value in (None, "", 0, []) else repr(value)


def _differences(saved: Mapping[str, Any], own: Mapping[str, Any]) -> List[str]:
    found = []
    if len(saved["parts"]) != len(own["parts"]):
        return [f"the state has {len(saved['parts'])} parts, this feed {len(own['parts'])}"]
    for i, (a, b) in enumerate(zip(saved["parts"], own["parts"])):
        of = f" of part {i}" if len(own["parts"]) > 1 else ""
        for key in b:
            if a.get(key) == b[key]:
                continue
            digests = key in ("samples", "weights") or (key == "class_weights" and "balanced" not in (a.get(key), b[key]))
            changed = "has other entries" if a.get(key) and b[key] else "was given" if a.get(key) else "was not given"
            found.append(f"{key}{of} {changed}" if digests else f"{key}{of} was {_say(a.get(key))} and is {_say(b[key])}")
    for key, words in (
        ("stages", "shares and stages"), ("mix", "mix"), ("buckets", "buckets"), ("blocks", "block_samples and group_blocks"),
        ("packs", "batch_tokens, tokens_field and batch_size"), ("epoch_samples", "epoch_samples"),
    ):  # fmt: skip
        if (saved.get(key) or None) != (own.get(key) or None):
            found.append(f"{words} was {_say(saved.get(key))} and is {_say(own.get(key))}")
    return found


def compare(saved: Optional[Mapping[str, Any]], own: Optional[Mapping[str, Any]]) -> None:
    """Raises BadOption, with the differences in words, if positions of one order mean other samples in the other."""
    if saved == own:
        return
    if saved is None or own is None:
        raise BadOption(
            "order: the state was saved by a feed "
            + ("of a whole dataset, and this one has parts or chooses samples" if saved is None else "with parts or chosen samples, and this one has none")
            + ", which gives different batches", 22,
        )  # fmt: skip
    found = _differences(saved, own)
    if not found and saved.get("hash") == own["hash"]:
        return
    what = "; ".join(found) or "the daemon orders the samples otherwise than the one before"
    raise BadOption(f"order: {what}: that gives different batches", 22)


