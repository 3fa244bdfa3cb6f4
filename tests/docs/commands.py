#!/usr/bin/env python3
"""Runs the commands of a document as they stand.

    commands.py DOCUMENT FOLDER

DOCUMENT is a Markdown file, of which the blocks ```sh are taken, or the source of a manual page (.scd), of which all blocks of EXAMPLE or
EXAMPLES are. They run in FOLDER, in order, in one shell that stops at the first that fails; the Python among a manual page's runs in
python3, and a configuration is checked by loaderd. A file named like the document in this folder, with .sh behind, runs first, in the same shell:
it makes the files that the examples name, and says what else they need. For a manual page FOLDER is made anew. Exits with 77 where that file does.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys


def blocks_of_markdown(text):
    return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def blocks_of_manual(text):
    section = re.search(r"^# EXAMPLES?\n(.*?)(?=^# |\Z)", text, re.MULTILINE | re.DOTALL).group(1)
    for literal, indented in re.findall(r"^```\n(.*?)^```$|((?:^\t(?:[^\n]*\+\+\n)*[^\n]*\n)+)", section, re.MULTILINE | re.DOTALL):
        if literal:
            yield literal
        else:
            lines = re.sub(r"\+\+$", "", indented, flags=re.MULTILINE)
            yield re.sub(r"\\(.)", r"\1", re.sub(r"^\t", "", lines, flags=re.MULTILINE))


def command(block):
    """What the shell is told to run for this block."""
    if re.match(r"(import|from) ", block):
        return "python3 - <<'END_OF_BLOCK'\n" + block + "END_OF_BLOCK\n"
    if block.startswith("["):
        return "cat >block.conf <<'END_OF_BLOCK'\n" + block + "END_OF_BLOCK\nloaderd --check-config --config block.conf\n"
    if block.startswith("#!"):
        return "cat >block <<'END_OF_BLOCK'\n" + block + "END_OF_BLOCK\nchmod +x block\n./block\n"
    return block


def main():
    document, folder = pathlib.Path(sys.argv[1]), sys.argv[2]
    blocks = list((blocks_of_manual if document.suffix == ".scd" else blocks_of_markdown)(document.read_text()))
    if not blocks:
        sys.exit(f"{document}: no commands found")
    first = pathlib.Path(__file__).resolve().parent / (document.name.removesuffix(".scd") + ".sh")
    script = "set -eEu -o pipefail\n"
    if first.exists():
        script += f". {shlex.quote(str(first))}\n"
    for block in blocks:
        script += f"printf '\\n%s\\n' {shlex.quote('== ' + block.rstrip())}\n{command(block)}echo >&3\n"
    if document.suffix == ".scd":
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
    os.makedirs(folder, exist_ok=True)
    counter, told = os.pipe()
    shell = subprocess.Popen(["bash", "-c", f"exec 3>&{told}\n{script}"], cwd=folder, pass_fds=[told], stdin=subprocess.DEVNULL,
                             start_new_session=True)
    os.close(told)
    status = shell.wait()
    try:
        os.killpg(shell.pid, 15)  # what an example left in the background
    except ProcessLookupError:
        pass
    with os.fdopen(counter) as lines:
        ran = len(lines.read())
    if status == 77:
        sys.exit(77)
    if status or ran != len(blocks):
        sys.exit(f"{document}: block {ran + 1} of {len(blocks)} failed (exit status {status}):\n{blocks[min(ran, len(blocks) - 1)]}")
    print(f"\n{document}: all {ran} blocks ran")


main()
