#!/usr/bin/env python3
"""Writes golden numbers compactly, with many on a line.

    tests/golden/packed.py FILE...      repacks these JSON files; changes no digit

In JSON, each member that is an object begins a line, so that a diff shows which tensor's numbers changed.
"""
import json
import pathlib
import re
import sys

WIDTH = 160
RECORDS_WIDTH = 400


def packed(text):
    """Returns the same JSON with other spaces and line breaks."""
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|[^\s",:\[\]{}]+|[,:\[\]{}]', text)
    lines = [""]
    for i, token in enumerate(tokens):
        before = tokens[i - 1] if i else ""
        begins_object = token[0] == '"' and tokens[i + 1:i + 3] == [":", "{"]
        space = " " if before in (",", ":") else ""
        if (begins_object and lines[-1]) or (before not in ("", ":") and token not in ",:]}" and len(lines[-1] + space + token) >= WIDTH):
            lines.append("")
            space = ""
        lines[-1] += space + token
    return "\n".join(lines) + "\n"


def write(path, made):
    pathlib.Path(path).write_text(packed(json.dumps(made)))


def write_records(path, comment, records):
    """Writes a file for fscanf(): one line with the comment, then records of words, several on a line."""
    lines = [comment]
    for record in records:
        if len(lines) > 1 and len(lines[-1]) + 2 + len(record) <= RECORDS_WIDTH:
            lines[-1] += "  " + record
        else:
            lines.append(record)
    pathlib.Path(path).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = pathlib.Path(name)
        path.write_text(packed(path.read_text()))
