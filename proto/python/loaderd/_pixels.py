"""Images, masks and rasters given to a Writer, as bytes to encode."""

import os
from array import array
from typing import Any, NamedTuple, Sequence, Tuple

from ._schema import Value, shape_fits, shape_text

_SIDE_MAX = (1 << 16) - 1
_PIL_FORMATS = {"L": "B", "P": "B", "RGB": "B", "I;16": "H", "I": "i", "F": "f"}  # PIL mode -> struct format of its elements


class Pixels(NamedTuple):
    """An image, a mask or a raster to encode."""

    value: Value
    data: bytes  # file of an image, or pixels
    shape: Tuple[int, int, int]  # height, width and channels of pixels; channels 0 if data is a file

    def encode(self, encoder: Any, in_statistics: bool) -> Any:
        if self.value.is_rgb:
            return encoder.encode(self.data, *self.shape, in_statistics)
        return encoder.raster(self.data, *self.shape, self.value.raster_element)


def _is_pil(given: Any) -> bool:
    return hasattr(given, "convert") and hasattr(given, "getbands")


def _read(path: "os.PathLike[str]") -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _is_file(given: Any) -> bool:
    return isinstance(given, (bytes, bytearray)) or (isinstance(given, memoryview) and given.ndim == 1)


def _view(given: Any, what: str) -> memoryview:
    if hasattr(given, "detach"):  # a PyTorch tensor
        given = given.detach().cpu().numpy()
    try:
        return memoryview(given)
    except TypeError:
        raise ValueError(f"it is a {type(given).__name__}; give {what}") from None


def _check_sides(shape: Sequence[int]) -> None:
    if not all(0 < side <= _SIDE_MAX for side in shape[:2]):
        raise ValueError(f"its shape is {tuple(shape)}; sides are 1 to {_SIDE_MAX}")


def _rgb(given: Any) -> Tuple[bytes, Tuple[int, int, int]]:
    """Copies the pixels of an image u8[h,w,3]; accepts grey ones too."""
    if _is_pil(given):
        given = given if given.mode in ("L", "RGB") else given.convert("RGB")
        return given.tobytes(), (given.height, given.width, len(given.getbands()))
    view = _view(given, "the bytes of an image file, a path as pathlib.Path, or an array u8[height, width, 3]")
    shape: Tuple[int, ...] = view.shape or ()
    if view.format != "B":
        raise ValueError(f"its elements are of format {view.format!r}; convert them to bytes of 0..255: array.astype('uint8')")
    if len(shape) == 2:
        shape = (*shape, 1)
    if len(shape) != 3 or shape[2] not in (1, 3):
        hint = "; array.transpose(1, 2, 0) puts channels last" if len(shape) == 3 and shape[0] in (1, 3) else ""
        raise ValueError(f"its shape is {shape}, not (height, width, 3), (height, width, 1) or (height, width){hint}")
    _check_sides(shape)
    return view.tobytes(), (shape[0], shape[1], shape[2])


def _open(data: bytes) -> Any:
    """Reads a file of a mask or a raster with PIL, which keeps palette indices and 16 bits."""
    try:
        import io

        from PIL import Image
    except ImportError:
        raise ValueError("files of masks and rasters are read with Pillow (pip install pillow); or give an array") from None
    try:
        image = Image.open(io.BytesIO(data))
        image.load()
    except Exception as error:
        raise ValueError(f"Pillow cannot read it: {error}") from None
    return image


def _check_range(low: int, high: int, value: Value) -> None:
    if low < value.bounds[0] or high >= value.bounds[1]:
        raise ValueError(f"its numbers are {low} .. {high}, and {value.element} holds {value.bounds[0]} .. {value.bounds[1] - 1}")


def _of_pil(image: Any, value: Value) -> Tuple[str, bytes]:
    """The format and the pixels of a PIL image. Older versions of PIL read 16-bit PNGs as 32-bit pixels; converts these to the element."""
    element, data = _PIL_FORMATS.get(image.mode, image.mode), image.tobytes()
    if image.mode != "I" or value.is_real:
        return element, data
    pixels = array(element, data)
    _check_range(min(pixels), max(pixels), value)
    return value.format, array(value.format, pixels).tobytes()


def _cast(given: Any, value: Value) -> Any:
    """Converts a NumPy array to the element if that changes no value."""
    kind = {"u8": "uint8", "u16": "uint16", "i16": "int16", "i32": "int32", "f32": "float32"}[value.element]
    if not hasattr(given, "astype") or given.dtype == kind:
        return given
    if given.dtype.kind in "iub" and not value.is_real and given.size:
        _check_range(int(given.min()), int(given.max()), value)
        return given.astype(kind)
    return given.astype(kind) if given.dtype.kind == "f" and value.is_real else given


def _raster(given: Any, value: Value) -> Tuple[bytes, Tuple[int, int, int]]:
    """Copies the pixels of a mask, a raster, or an image that is not u8[h,w,3]."""
    if _is_file(given):
        given = _open(bytes(given))
    if _is_pil(given):
        given = given if given.mode != "1" else given.convert("L").point(lambda byte: byte > 0)
        shape: Tuple[int, ...] = (given.height, given.width, *([3] if given.mode == "RGB" else []))
        element, data = _of_pil(given, value)
    else:
        view = _view(_cast(given, value), f"an array {value.element}{shape_text(value.shape)}")
        shape, element, data = view.shape or (), view.format, view.tobytes()
    if element != value.format:
        raise ValueError(f"its elements are of format {element!r}, not {value.element}")
    if len(shape) == 2 and len(value.shape) == 3 and value.channels == 1:
        shape = (*shape, 1)
    if not shape_fits(shape, value):
        raise ValueError(f"its shape is {list(shape)}, not {shape_text(value.shape).replace('*', 'any')}")
    _check_sides(shape)
    return data, (shape[0], shape[1], value.channels)


def prepare(value: Value, given: Any) -> Pixels:
    """Copies an image, a mask or a raster. Raises ValueError for unsuitable pixels, OSError if a file cannot be read."""
    if isinstance(given, str):
        raise ValueError("it is a text; give a path as pathlib.Path")
    if isinstance(given, os.PathLike):
        given = _read(given)
    if not value.is_rgb:
        return Pixels(value, *_raster(given, value))
    return Pixels(value, bytes(given), (0, 0, 0)) if _is_file(given) else Pixels(value, *_rgb(given))
