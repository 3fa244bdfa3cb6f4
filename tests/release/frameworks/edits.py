"""Edits of scripts by statement, so that they apply to several releases of a published script."""

import ast
import difflib
from typing import NamedTuple


class Edit(NamedTuple):
    """Replaces the only statement whose first line begins with `old` by `new`; with `keep`, inserts `new` after it."""

    old: str
    new: str
    keep: bool = False


def _statement(text: str, old: str) -> ast.stmt:
    lines = text.splitlines()
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt) and lines[node.lineno - 1].strip().startswith(old)]
    if len(found) != 1:
        raise SystemExit(f"the script has {len(found)} statements that begin with {old!r}; the edit needs one")
    return found[0]


def apply(text: str, edits: "tuple[Edit, ...]") -> str:
    for edit in edits:
        node = _statement(text, edit.old)
        lines = text.splitlines()
        new = [" " * node.col_offset + line for line in edit.new.splitlines()]
        first = node.end_lineno if edit.keep else node.lineno - 1
        lines[first : node.end_lineno] = new
        text = "\n".join(lines) + "\n"
    return text


def difference(before: str, after: str, name: str) -> "tuple[list[str], int]":
    """Returns the differing lines in diff's format, and the number of added lines."""
    old, new = before.splitlines(), after.splitlines()
    lines, changed = [f"--- {name}", f"+++ {name} with loaderd"], 0
    # without autojunk, which treats blank lines of long scripts as differences
    for tag, i, i_end, j, j_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            lines += [f"@@ -{i + 1},{i_end - i} +{j + 1},{j_end - j} @@", *("-" + line for line in old[i:i_end]), *("+" + line for line in new[j:j_end])]
            changed += j_end - j
    return lines, changed
