#!/usr/bin/env python3
"""Runs the commands in a document unchanged.

    commands.py DOCUMENT FOLDER

DOCUMENT is a Markdown file, from which it takes the ```sh blocks, or the source of a manual page (.scd), from which it takes all blocks of the section EXAMPLE
or EXAMPLES. One shell runs them in order in FOLDER and stops at the first failure. In manual pages, Python blocks run in python3, and loaderd checks
configurations. A file in this folder named after the document, with the suffix .sh, runs first in the same shell: it creates the files that the examples need and
exits with 77 to skip the test. For a manual page, FOLDER is emptied first.
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
    """Returns the shell commands that run this block."""
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
        shutil.rmtree(folder, ignore_errors=True)  # remove files of an earlier run
    os.makedirs(folder, exist_ok=True)
    counter, told = os.pipe()
    shell = subprocess.Popen(["bash", "-c", f"exec 3>&{told}\n{script}"], cwd=folder, pass_fds=[told], stdin=subprocess.DEVNULL,
                             start_new_session=True)
    os.close(told)
    status = shell.wait()
    try:
        os.killpg(shell.pid, 15)  # end background processes of the examples
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
