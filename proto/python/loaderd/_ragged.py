"""Values with any number of rows."""

from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


def as_tensor(array: "NDArray[Any]") -> "Tensor":
    """Converts to a PyTorch tensor, without a copy if PyTorch has the element: uint16 becomes int32 before 2.3, uint64 becomes int64."""
    import numpy
    import torch

    if array.dtype == numpy.uint64:
        array = array.view(numpy.int64)
    elif array.dtype == numpy.uint16 and not hasattr(torch, "uint16"):
        array = array.astype(numpy.int32)
    return torch.from_numpy(array)


def jagged(values: "Tensor", offsets: "Tensor") -> "Tensor":
    import torch

    make = getattr(torch.nested, "nested_tensor_from_jagged", None)
    if make is None:
        raise RuntimeError(
            f"nested tensors of layout torch.jagged need PyTorch 2.5 or later, this is {torch.__version__}; use list(), or values and offsets"
        )
    nested: "Tensor" = make(values, offsets)
    return nested


def packed(rows: Any, starts: Sequence[int], counts: Sequence[int], concatenate: Callable[[List[Any]], Any]) -> Any:
    """Returns the rows of all samples, one behind the other: without a copy if they are so already."""
    ends = [start + count for start, count in zip(starts, counts)]
    if starts and list(starts[1:]) == ends[:-1]:
        return rows[starts[0] : ends[-1]]
    return concatenate([rows[start:end] for start, end in zip(starts, ends)])


class Ragged:
    """The rows of one value, such as boxes, of each sample in a batch. Copies, which do not keep the batch; but patches of images are views
    of shared memory, as images are, if the feed has batch_tokens.

    ragged[i] and list()[i] are the rows of sample i. `values` has the rows of all samples, concatenated; those of sample i are
    values[offsets[i]:offsets[i + 1]].
    """

    __slots__ = ("values", "offsets")

    def __init__(self, rows: "NDArray[Any]", starts: Sequence[int], counts: Sequence[int], copy: bool = True) -> None:
        import numpy

        found = packed(rows, starts, counts, numpy.concatenate)
        self.values: "NDArray[Any]" = found.copy() if copy and found.base is not None else found
        self.offsets: "NDArray[Any]" = numpy.concatenate([[0], numpy.cumsum(counts, dtype=numpy.int64)])

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.offsets) - 1

    def __getitem__(self, sample: int) -> "NDArray[Any]":
        if not -len(self) <= sample < len(self):
            raise IndexError(f"sample {sample} of a batch of {len(self)}")
        sample %= len(self)
        return self.values[self.offsets[sample] : self.offsets[sample + 1]]

    def __iter__(self) -> "Iterator[NDArray[Any]]":
        return (self[sample] for sample in range(len(self)))

    def list(self) -> "List[Tensor]":
        """One PyTorch tensor for each sample, as torchvision's detection models take them. For elements, see as_tensor()."""
        return [as_tensor(rows) for rows in self]

    def nested(self) -> "Tensor":
        """A nested PyTorch tensor of layout torch.jagged; needs PyTorch 2.5 or later."""
        import torch

        return jagged(as_tensor(self.values), torch.from_numpy(self.offsets))

    def __repr__(self) -> str:
        return f"<loaderd.Ragged of {len(self)} samples: {len(self.values)} rows {self.values.shape[1:]} {self.values.dtype}>"
