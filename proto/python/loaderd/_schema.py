"""The schema of a dataset to write: names, roles and types of the values of a sample."""

import re
from difflib import get_close_matches
from typing import Dict, List, Mapping, NamedTuple, Tuple, Union

from ._errors import BadOption

Text = Union[str, Mapping[str, str]]

_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)\s*:\s*([a-z]+)(?:\s+([a-z]+[0-9]+)(\[[^\]]*\])?)?(\s+sparse)?\s*")
_INTEGERS = {"u8": (0, 1 << 8), "u16": (0, 1 << 16)}
_INTEGERS.update({f"i{bits}": (-(1 << bits - 1), 1 << bits - 1) for bits in (8, 16, 32, 64)})
_REALS = ("f32", "f64")
# role: the element that it has by default, the elements that it may have
_ROLES: Dict[str, Tuple[str, Tuple[str, ...]]] = {
    "image": ("u8", ("u8",)),
    "class": ("i32", tuple(_INTEGERS)),
    "value": ("f32", (*_REALS, *_INTEGERS)),
    "text": ("", ()),
    "bytes": ("", ()),
    "json": ("", ()),
    "key": ("", ()),
}  # fmt: skip


class Value(NamedTuple):
    """A value of each sample."""

    name: str
    role: str  # image, class, value, text, bytes, json or key
    element: str  # "" for text, bytes, JSON and keys
    sparse: bool  # samples may lack it

    @property
    def bounds(self) -> Tuple[int, int]:
        """The least integer, and the first that is too large."""
        return _INTEGERS[self.element]

    @property
    def is_real(self) -> bool:
        return self.element in _REALS


def _refuse(line: str, why: str) -> BadOption:
    return BadOption(f"schema: {line!r}: {why}", 22)


def _parse_line(line: str) -> Value:
    found = _LINE.fullmatch(line)
    if not found:
        raise _refuse(line, "not NAME: ROLE ELEMENT, such as 'image: image u8[h,w,3]', 'age: value i32' or 'caption: text'")
    name, role, element, shape, sparse = found.groups()
    if role not in _ROLES:
        near = get_close_matches(role, _ROLES, 1)
        raise _refuse(line, f"there is no role {role!r}; " + (f"did you mean {near[0]}?" if near else f"it is one of {', '.join(_ROLES)}"))
    default, elements = _ROLES[role]
    if element and element not in elements:
        raise _refuse(line, f"{role} has elements of {', '.join(elements)}" if elements else f"{role} has no element")
    if role == "image" and shape not in (None, "[h,w,3]"):
        raise _refuse(line, "an image is u8[h,w,3]")
    if role != "image" and shape:
        raise _refuse(line, "only single numbers can be written; json takes lists")
    return Value(name, role, element or default, bool(sparse))


def _check_roles(values: List[Value]) -> None:
    if len({value.name for value in values}) < len(values):
        raise BadOption("schema: two values have the same name", 22)
    for role, least in (("image", 1), ("key", 0)):
        count = sum(value.role == role for value in values)
        if not least <= count <= 1:
            raise BadOption(f"schema: {count} values are of role {role}; a sample has {'' if least else 'at most '}one", 22)


def parse(schema: Text) -> List[Value]:
    """Parses a schema: a text of a line for each value, or {name: the rest of its line}. Adds label and key unless others have their roles."""
    lines = schema.splitlines() if isinstance(schema, str) else [f"{name}: {rest}" for name, rest in schema.items()]
    stripped = (line.split("#")[0].strip() for line in lines)
    values = [_parse_line(line) for line in stripped if line]
    for name, role, element in (("label", "class", "i32"), ("key", "key", "")):
        if not any(value.role == role or value.name == name for value in values):
            values.append(Value(name, role, element, True))
    _check_roles(values)
    return values
