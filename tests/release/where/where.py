#!/usr/bin/env python3
"""Compares random filters with a model of their language.

    where.py [--filters N] [--seed SEED]

Packs images with random numbers and texts, some of them absent, and generates filters. Evaluates each on the values that `packimg list --json` prints, with
three-valued logic, Python's integers and floats, and regular expressions for patterns, and compares the samples with those of `packimg list --where`. The
environment variable PACKIMG names the program.
"""

import argparse
import csv
import json
import math
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import zlib

PACKIMG = os.environ["PACKIMG"]
SAMPLES = 60
CLASSES = ["ant", "bee's", 'c"t', "d\\g", "été"]
NUMBERS = [0, 1, -1, 2, 7, 40, 2**53, 2**53 + 1, -2**53 - 1, 2**62, 2**63 - 1, -2**63, 10**18]
TEXTS = ["", "a", "ab", "aab", "abab", "*", "a*b", "a?b", "été", "\\", "'\"", "x y", "abcabcabcabd", "aé"]


# Dataset


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(bytes((width + 1) * height))) + chunk(b"IEND", b""))


def pack(folder, draw):
    with open(folder / "table.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, quoting=csv.QUOTE_MINIMAL)
        table.writerow(["path", "label", "whole", "real", "note"])
        for i in range(SAMPLES):
            name = f"{draw.choice('ab')}/{i:02}.png"
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(png(draw.randint(1, 9), draw.randint(1, 9)))
            table.writerow([name, draw.choice(CLASSES),
                            "" if draw.random() < 0.2 else draw.choice(NUMBERS) if i else 2**53 + 1,
                            "" if draw.random() < 0.2 else draw.choice([0.5, -2.5, 1e300, -0.0, 3.0, 2.0**53, math.nan]) if i else 0.25,
                            draw.choice(TEXTS[1:]) if i and draw.random() < 0.8 else "" if i else "a"])
    subprocess.run([PACKIMG, "convert", "-q", folder / "table.csv", "-o", folder / "where.pimg"], check=True, stdout=subprocess.DEVNULL)
    listed = subprocess.run([PACKIMG, "list", "--json", folder / "where.pimg"], check=True, capture_output=True).stdout.splitlines()
    samples = []
    for line in listed:
        sample = json.loads(line)
        values = {key: sample[key] for key in ("width", "height", "label", "class")}
        values |= {"sample": sample["index"], "key": sample["source"], **sample.get("fields", {})}
        samples.append(values)
    return samples


# The language. An expression is its text, the precedence of its outermost operator, and a function of a sample; None is absent or unknown.

OR, AND, NOT, COMPARISON, SUM, PRODUCT, SIGN, PRIMARY = range(8)
INT64 = range(-2**63, 2**63)


def number(value):
    return None if isinstance(value, float) and math.isnan(value) else value


def divide(a, b):
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, math.copysign(1, a) * math.copysign(1, b))


ARITHMETIC = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": divide}
RELATIONS = {"=": lambda a, b: a == b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
             "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b}  # fmt: skip


def compute(operator, a, b):
    if a is None or b is None:
        return None
    if operator != "/" and isinstance(a, int) and isinstance(b, int) and a in INT64 and b in INT64:
        exact = ARITHMETIC[operator](a, b)
        if exact in INT64:
            return exact
    return number(ARITHMETIC[operator](float(a), float(b)))


def negate(a):
    if isinstance(a, float):
        return -a
    return -2**63 if a == 2**63 else compute("-", 0, a)


def like(text, pattern):
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    expression = "".join(".*" if part == "*" else "." if part == "?" else re.escape(part[-1]) for part in parts)
    return re.fullmatch(expression, text, re.DOTALL) is not None


class Filters:
    """Generates filters."""

    def __init__(self, draw, keys):
        self.draw = draw
        self.keys = keys

    def within(self, expression, precedence):
        text, own, evaluate = expression
        blank = self.draw.choice(["", " "])
        if own < precedence or self.draw.random() < 0.1:
            text, own = f"({blank}{text}{blank})", PRIMARY
        return text, own, evaluate

    def quoted(self, text, pattern=False):
        """Returns a literal. A pattern keeps the backslashes that it has."""
        quote = self.draw.choice("'\"")
        parts = re.findall(r"\\.|.", text, re.DOTALL) if pattern else text
        return quote + "".join("\\" + part if part in ("\\", quote) else part for part in parts) + quote

    def literal(self):
        draw = self.draw
        value = abs(draw.choice([draw.choice(NUMBERS), draw.randint(0, 9), draw.choice([2**63, 2**64 - 1, 2**64, 10**30]),
                                 draw.choice([0.5, 2.5, 3.0, 1e300, 2.0**53])]))  # fmt: skip
        return repr(value), value if isinstance(value, float) or value < 2**64 else float(value)

    def number(self, depth):
        draw = self.draw
        kind = draw.random()
        if depth == 0 or kind < 0.4:
            name = draw.choice(["width", "height", "label", "sample", "whole", "whole", "real", "`real`"])
            return name, PRIMARY, lambda s: number(s.get(name.strip("`")))
        if kind < 0.6:
            text, value = self.literal()
            return text, PRIMARY, lambda s: value
        if kind < 0.65:
            name = draw.choice(["note", "key"])
            return f"count({name})", PRIMARY, lambda s: None if s.get(name) is None else len(s[name].encode())
        if kind < 0.75:
            text, _, evaluate = self.within(self.number(depth - 1), SIGN)
            return "-" + text, SIGN, lambda s: None if evaluate(s) is None else negate(evaluate(s))
        operator = draw.choice("+-*/")
        own = SUM if operator in "+-" else PRODUCT
        left, _, a = self.within(self.number(depth - 1), own)
        right, _, b = self.within(self.number(depth - 1), own + 1)
        return f"{left} {operator} {right}", own, lambda s: compute(operator, a(s), b(s))

    def text(self):
        draw = self.draw
        if draw.random() < 0.8:
            name = draw.choice(["note", "note", "key", "class"])
            return name, PRIMARY, lambda s: s.get(name)
        value = draw.choice(TEXTS)
        return self.quoted(value), PRIMARY, lambda s: value

    def constant_text(self, name):
        """A text to compare with the value of that name."""
        return self.draw.choice(CLASSES if name == "class" else self.keys if name == "key" else TEXTS)

    def pattern(self):
        text = self.draw.choice(TEXTS + CLASSES + self.keys)
        replacements = ["*", "?", "\\*", "\\?", "**", "a", "é"]
        parts = [self.draw.choice(replacements) if self.draw.random() < 0.4 else "\\" + c if c in "*?\\" else c for c in text]
        return "".join(parts) + self.draw.choice(["", "*", "?"])

    def listed(self):
        draw = self.draw
        negated = draw.random() < 0.3
        word = "not in" if negated else "in"
        if draw.random() < 0.5:
            text, _, a = self.within(self.number(1), SUM)
            pairs = [self.literal() for _ in range(draw.randint(1, 6))]
            signs = [draw.random() < 0.3 for _ in pairs]
            values = [negate(value) if sign else value for (_, value), sign in zip(pairs, signs)]
            items = ", ".join("-" * sign + item for (item, _), sign in zip(pairs, signs))
        else:
            text, _, a = self.text()
            values = [self.constant_text(text) for _ in range(draw.randint(1, 6))]
            items = ",".join(self.quoted(value) for value in values)
        return f"{text} {word} ({items})", COMPARISON, lambda s: None if a(s) is None else (a(s) in values) != negated

    def comparison(self, depth):
        draw = self.draw
        kind = draw.random()
        if kind < 0.1:
            name = draw.choice(["whole", "real", "note", "label", "class", "key", "image"])
            # list --json prints NaN as null, which is present
            return f"has({name})", PRIMARY, lambda s: name in s or name == "image"
        if kind < 0.3:
            return self.listed()
        if kind < 0.45:
            negated, pattern = draw.random() < 0.3, self.pattern()
            text, _, a = self.text()
            return (f"{text} {'not ' * negated}like {self.quoted(pattern, True)}", COMPARISON,
                    lambda s: None if a(s) is None else like(a(s), pattern) != negated)
        operator = draw.choice(list(RELATIONS))
        if kind < 0.65:
            left, _, a = self.text()
            value = self.constant_text(left)
            return f"{left} {operator} {self.quoted(value)}", COMPARISON, lambda s: None if a(s) is None else RELATIONS[operator](a(s).encode(), value.encode())
        left, _, a = self.within(self.number(depth), SUM)
        right, _, b = self.within(self.number(depth), SUM)
        return f"{left} {operator} {right}", COMPARISON, lambda s: None if a(s) is None or b(s) is None else RELATIONS[operator](a(s), b(s))

    def condition(self, depth):
        draw = self.draw
        kind = draw.random()
        if depth == 0 or kind < 0.3:
            return self.comparison(draw.randint(0, 3))
        if kind < 0.5:
            text, _, a = self.within(self.condition(depth - 1), NOT)
            return "not " + text, NOT, lambda s: None if a(s) is None else not a(s)
        own, word, decided = (AND, "and", False) if kind < 0.75 else (OR, "or", True)
        left, _, a = self.within(self.condition(depth - 1), own)
        right, _, b = self.within(self.condition(depth - 1), own + 1)

        def evaluate(sample):
            results = a(sample), b(sample)
            return decided if decided in results else None if None in results else not decided

        return f"{left} {word} {right}", own, evaluate


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--filters", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    some = wrong = 0
    with tempfile.TemporaryDirectory(prefix="where-") as name:
        samples = pack(pathlib.Path(name), draw)
        filters = Filters(draw, [sample["key"] for sample in samples])
        for _ in range(arguments.filters):
            text, _, evaluate = filters.condition(draw.randint(0, 5))
            wanted = [sample["sample"] for sample in samples if evaluate(sample) is True]
            done = subprocess.run([PACKIMG, "list", "--json", f"--where={text}", pathlib.Path(name) / "where.pimg"], capture_output=True, check=False)
            found = [json.loads(line)["index"] for line in done.stdout.splitlines()]
            some += 0 < len(wanted) < SAMPLES
            if done.returncode != 0 or found != wanted:
                wrong += 1
                print(f"{text}\n  found  {found}\n  wanted {wanted}\n  {done.stderr.decode()}")
    print(f"{arguments.filters} filters, of which {some} match some samples and not all: {wrong} differ from the model")
    return 1 if wrong or some < arguments.filters // 4 else 0


if __name__ == "__main__":
    sys.exit(main())
