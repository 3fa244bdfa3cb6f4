#!/usr/bin/env python3
"""Checks that everything that documents refer to exists: links and their headings, files, and manual pages.

    tests/lint/links.py [TREE]

Documents are Markdown files and manual pages. A file named in Markdown, in code or in a listing, is searched for at the top of the tree,
next to the document, and in the folder that the line is about: a listing's first word, or a table row's link. Capitals stand for any
name, as in `test_FAMILY.c`. In bench/results, only links are checked, because records name the files of their time.
"""
import os
import pathlib
import re
import sys

SOURCES = "c|h|cc|cu|py|sh|md|scd|map|proto|build|ini|txt|in"
NAMED = re.compile(rf"(?<![\w./$~*{{}}-])((?:[\w.*-]+/)*[\w.*-]+\.(?:{SOURCES}))(?![\w/*-]|\.\w)")
PAGE = re.compile(r"([a-z][\w.-]*)\*?\((\d)\)")
# Manual pages of other projects. Fails on references to pages that are neither ours nor listed here, and on unused entries.
OTHERS = {"fork(2)", "nice(1)", "posix_spawn(3)", "ss(8)", "vfork(2)"}
# files that a run creates
MADE = {"bench/peers/README.md": {"peers.md"}, "tests/gpu/README.md": {"OUT/report.md"}}


def documents(tree):
    for folder, folders, files in os.walk(tree):
        folders[:] = sorted(name for name in folders
                            if not name.startswith("build") and (not name.startswith(".") or name == ".github"))
        for name in sorted(files):
            if name.endswith((".md", ".scd")):
                yield pathlib.Path(folder, name)


def anchors(document):
    """Returns the fragments that GitHub assigns to a document's headings."""
    headings = re.findall(r"^#+ +(.*)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def link_fault(tree, document, target):
    path, _, fragment = target.partition("#")
    found = (document.parent / path).resolve() if path else document
    if not found.exists():
        return f"the link to {path} leads nowhere"
    if tree not in (found, *found.parents):
        return f"the link to {path} leaves the tree"
    if fragment and fragment not in anchors(found):
        return f"no heading of {path or 'this document'} makes #{fragment}"
    return None


def exists(folder, name):
    if (folder / name).exists():
        return True
    pattern = re.sub(r"(?<![a-z])[A-Z][A-Z]+(?![a-z])", "*", name)
    return "*" in pattern and any(folder.glob(pattern))


def markdown_faults(tree, document):
    text = document.read_text()
    place = document.relative_to(tree)
    for number, line in enumerate(text.split("\n"), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if not re.match(r"[a-z]+:", target):
                fault = link_fault(tree, document, target)
                if fault:
                    yield number, fault
    if place.parts[:2] == ("bench", "results"):
        return
    fenced, listed = False, None
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            continue
        if not line.startswith("    "):
            listed = None
        elif re.match(r" {4,6}[\w./]+/[\w.]* ", line):
            listed = line.split()[0].rpartition("/")[0]
        elif re.match(r" {4,6}\S", line):
            listed = None
        about = [listed] if listed else [link for link in re.findall(r"\]\(([^)#]+)\)", line) if line.startswith("|")]
        folders = [tree, document.parent, *(document.parent / folder for folder in about)]
        words = NAMED.findall(line)
        # a code span that is a path; of a folder only if it starts at the top
        words += [span for span in re.findall(r"`([\w./*-]+)`", line) if "/" in span and not span.startswith("build") and (tree / span.split("/")[0]).is_dir()]
        # folders in the first column of a row
        words += re.findall(r"`([\w./-]+/)`", line) if line.startswith("|") else []
        for word in dict.fromkeys(words):
            if word not in MADE.get(str(place), ()) and not any(exists(folder, word) for folder in folders):
                yield number, f"{word} is named, and is not in {', '.join(str(folder.relative_to(tree)) for folder in folders)}"


def readme_faults(tree):
    lines = (tree / "README.md").read_text().split("\n")[:-1]
    if len(lines) > 120:
        yield f"README.md: {len(lines)} lines, at most 120"
    yield from (f"README.md:{number}: {len(line)} characters, at most 100" for number, line in enumerate(lines, 1) if len(line) > 100)
    if "```" not in lines[lines.index("```python") : 26]:
        yield "README.md: the first program is at an end later than line 26"


def main():
    tree = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = list(documents(tree))
    ours = {re.sub(r"^(.*)\.(\d)\.scd$", r"\1(\2)", page.name) for page in found if page.suffix == ".scd"}
    faults, named = [], set()
    for document in found:
        text = document.read_text().replace("\\", "")
        if document.suffix == ".md":  # in code, function calls look like references to pages
            text = re.sub(r"```.*?```", lambda code: "\n" * code[0].count("\n"), text, flags=re.S)
            text = re.sub(r"`[^`\n]*`", "", text)
        else:  # lines of code begin with a tab, as arguments' descriptions do; pipelines have braces
            text = re.sub(r"(?m)^\t.*\{.*\}$", "", text)
        for number, line in enumerate(text.split("\n"), 1):
            for name, section in PAGE.findall(line):
                page = f"{name}({section})"
                named.add(page)
                if page not in ours | OTHERS:
                    faults.append(f"{document.relative_to(tree)}:{number}: there is no page {page}")
        if document.suffix == ".md":
            faults += [f"{document.relative_to(tree)}:{number}: {fault}" for number, fault in markdown_faults(tree, document)]
    faults += readme_faults(tree)
    faults += [f"tests/lint/links.py: {page} is listed as another project's, and no document names it" for page in sorted(OTHERS - named)]
    faults += [] if ours and len(found) > len(ours) else [f"{tree}: no documents"]
    print("\n".join(faults or [f"{len(found)} documents, {len(ours)} pages"]))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
