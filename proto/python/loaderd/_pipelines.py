"""The transforms that a pipeline can have, from the daemon's own table."""

from dataclasses import dataclass
from typing import List, Optional, Tuple

from . import _feed


@dataclass(frozen=True)
class Argument:
    """An argument of a transform, given by position or as NAME=VALUE."""

    name: str
    form: str  # how numbers are written: "N", "LOW:HIGH", "N or WxH"...; empty if the argument is a word
    minimum: Optional[float]  # of each number; None if the argument is a word
    maximum: Optional[float]
    words: Tuple[str, ...]  # allowed instead of numbers
    required: bool
    default: Optional[str]  # None if the argument, or another in its place, is required

    @property
    def values(self) -> str:
        """What may be given: "N, from 0 to 1, or alternate"."""
        numbers = f"{self.form}, from {self.minimum:.7g} to {self.maximum:.7g}" if self.form else ""
        words = ", ".join(self.words[:-1]) + " or " * (len(self.words) > 1) + "".join(self.words[-1:])
        return ", or ".join(filter(None, (numbers, words)))


@dataclass(frozen=True)
class Transform:
    """A transform of a pipeline: what `Feed(pipeline="NAME(ARGUMENTS) ...")` is made of."""

    name: str
    text: str  # what it does: one sentence
    arguments: Tuple[Argument, ...]

    @property
    def signature(self) -> str:
        """The transform as it is written, with defaults: "hflip(p=0.5)"."""
        return f"{self.name}({', '.join(one.name if one.default is None else f'{one.name}={one.default}' for one in self.arguments)})"


def pipelines() -> List[Transform]:
    """Lists the transforms of pipelines with their arguments, defaults and bounds. `python -m loaderd steps` prints them.

    A pipeline is a text of transforms with blanks between them: "random_resized_crop(224, scale=0.25:1) hflip to(f32)".
    """
    return [Transform(name, text, tuple(_argument(*facts) for facts in arguments)) for name, text, arguments in _feed.transforms()]


def _argument(name: str, form: str, words: str, minimum: float, maximum: float, required: bool, default: str) -> Argument:
    bounds = (minimum, maximum) if form else (None, None)
    return Argument(name, form, *bounds, tuple(words.split("|")) if words else (), required, default or None)
