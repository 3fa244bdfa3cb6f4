#!/usr/bin/env python3
"""Checks that packimg(1), README.md and meson_options.txt mention every row of tools/packimg/image/formats.txt. Prints what they lack.

    tests/lint/image_formats.py TREE
"""
import pathlib
import re
import sys


def main():
    tree = pathlib.Path(sys.argv[1])
    page, readme, options = ((tree / name).read_text() for name in ("tools/packimg/packimg.1.scd", "README.md", "meson_options.txt"))
    rows = [[column.strip() for column in line.split("|")]
            for line in (tree / "tools/packimg/image/formats.txt").read_text().splitlines() if not line.startswith("#")]
    read = [row for row in rows if row[3]]
    mistakes = []
    for kind, name, endings, _, library, *_ in read:
        row = f"|  {name}\n:  {endings}\n"
        if row not in page:
            mistakes.append(f"tools/packimg/packimg.1.scd, Images, lacks:\n{row}:  what of it is read")
        if library and not re.search(rf"^option\('{kind.lower()}', type: 'feature', value: 'auto', ", options, re.M):
            mistakes.append(f"meson_options.txt lacks:\noption('{kind.lower()}', type: 'feature', value: 'auto', description: ...)")
    for _, name, endings, reader, *_ in rows:
        if not reader and f"{name} ({endings})" not in page:
            mistakes.append(f"tools/packimg/packimg.1.scd, Images, does not say that it skips {name} ({endings})")
    for name in re.findall(r"^\|  (.*)\n:  \.", page, re.M):
        if name not in [row[1] for row in read]:
            mistakes.append(f"tools/packimg/packimg.1.scd, Images, has {name}, which is not read")
    names = ", ".join(row[1] for row in read[:-1]) + f" and {read[-1][1]}"
    if names not in " ".join(readme.split()):
        mistakes.append(f"README.md, use 1, lacks: {names}")
    print("\n".join(mistakes) or f"{len(rows)} kinds of images are where they should be")
    return bool(mistakes)


if __name__ == "__main__":
    sys.exit(main())
