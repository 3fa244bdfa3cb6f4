#!/usr/bin/env python3
"""Makes a C header of the page's style and script, with the hashes by which the page's Content-Security-Policy permits them.

    page_assets.py page.css page.js > page_assets.h
"""
import base64
import hashlib
import pathlib
import sys


def literal(text):
    """The text as C string literals, one a line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return "\n".join(f'\t"{line}\\n"' for line in escaped.splitlines())


def main():
    print('/* Made by page_assets.py. */\n#pragma once\n')
    for name, path in zip(("STYLE", "SCRIPT"), sys.argv[1:3]):
        text = pathlib.Path(path).read_text(encoding="utf-8")
        # the element's content: it ends at its end tag, and begins with no line feed of its own
        if "</" in text or not text.endswith("\n"):
            sys.exit(f"{path}: must end in a line feed and have no '</'")
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        print(f'#define PAGE_{name}_HASH "sha256-{digest}"')
        print(f'static const char page_{name.lower()}[] =\n{literal(text)};\n')


if __name__ == "__main__":
    main()
