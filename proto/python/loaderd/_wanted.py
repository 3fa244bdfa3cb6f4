"""Wanted feeds: the program, not the daemon, chooses the samples of each batch."""

from typing import Any, Mapping, Sequence

from ._errors import BadOption

# Options that define the daemon's order, with their neutral values.
_NO_ORDER: Mapping[str, Any] = {
    "shuffle": False, "epoch": 0, "batch": 0, "epoch_end": None, "rank": None, "world": None, "drop_last": None, "last": None, "repeats": 1,
    "buckets": None, "order": "samples", "batch_tokens": 0, "tokens_field": "",
}  # fmt: skip


def refuse_order(given: Mapping[str, Any]) -> None:
    """Raises BadOption if a wanted feed is given an option of the daemon's order."""
    for name, nothing in _NO_ORDER.items():
        if given[name] != nothing:
            raise BadOption(
                f"{name}: {given[name]!r} has no meaning in a wanted feed, which delivers the samples named in feed.want(); "
                f"omit {name}, or wanted=True", 22,
            )  # fmt: skip


def refuse(method: str, wanted: bool) -> None:
    """Raises BadOption if the method is for the other kind of feed. `wanted`: this is a wanted feed."""
    if wanted:
        raise BadOption(f"{method}: a wanted feed has no position; feed.want(epoch, samples) names the samples of the next batch", 22)
    raise BadOption(f"{method}: this feed delivers the daemon's order; open it with wanted=True to name the samples of each batch", 22)


def numbers(samples: Any) -> Sequence[int]:
    """Converts an array or a tensor of sample numbers to a list; leaves other sequences as they are."""
    listed = getattr(samples, "tolist", None)
    found: Sequence[int] = listed() if callable(listed) else samples
    return found
