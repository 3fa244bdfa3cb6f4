"""Possible faults of a C file, found in clang's syntax tree, so that comments, strings and macros stay unchanged.

A fault replaces a range of bytes by text with the same number of lines, so that other lines keep their numbers.
"""

import hashlib
import random
import re

from clang.cindex import Config, CursorKind as Kind, Index, TranslationUnit, TypeKind

Config.set_library_file("libclang-14.so.1")

OPERATORS = {
    "<": ["<="], "<=": ["<"], ">": [">="], ">=": [">"], "==": ["!="], "!=": ["=="],
    "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["/"], "<<": [">>"], ">>": ["<<"],
    "&": ["|"], "|": ["&"], "^": ["|"], "&&": ["||"], "||": ["&&"],
    "+=": ["-=", "="], "-=": ["+=", "="], "*=": ["/="], "/=": ["*="], "%=": ["/="],
    "|=": ["&=", "="], "&=": ["|=", "="], "^=": ["|="], "<<=": [">>="], ">>=": ["<<="],
}
RELATIONS = {"<", "<=", ">", ">=", "==", "!="}
COMMENT = re.compile(rb"/\*.*?\*/|//[^\n]*", re.DOTALL)
INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)[uUlL]*")
REAL = re.compile(r"[0-9.]+([eE][-+]?\d+)?[fF]?")
SCALARS = {TypeKind.BOOL, TypeKind.ENUM, TypeKind.POINTER, TypeKind.INT, TypeKind.UINT, TypeKind.LONG, TypeKind.ULONG,
           TypeKind.UCHAR, TypeKind.USHORT, TypeKind.SHORT, TypeKind.SCHAR, TypeKind.FLOAT, TypeKind.DOUBLE}
BODIES = {Kind.COMPOUND_STMT, Kind.IF_STMT, Kind.FOR_STMT, Kind.WHILE_STMT, Kind.CASE_STMT, Kind.DEFAULT_STMT}


class File:
    """Returns the faults of one file, each {file, kind, line, start, end, old, new, id}; those of a table have the kind "table"."""

    def __init__(self, name, path, arguments):
        self.name, self.source = name, path.read_bytes()
        unit = Index.create().parse(str(path), args=arguments,
                                    options=TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        self.faults, self.macros, self.result = [], [], None
        mine = [cursor for cursor in unit.cursor.get_children()
                if cursor.location.file and cursor.location.file.name == str(path)]
        for cursor in mine:
            start, end = span(cursor)
            if cursor.kind == Kind.MACRO_INSTANTIATION and self.source[start:end].endswith(b")"):
                self.macros.append((start, end))
        for cursor in mine:
            if cursor.kind == Kind.FUNCTION_DECL and cursor.is_definition():
                self.function(cursor)
            elif cursor.kind == Kind.VAR_DECL:
                self.visit(cursor, cursor, table=True)

    def text(self, start, end):
        return self.source[start:end].decode(errors="replace")

    def add(self, kind, start, end, new):
        if start >= end or any(first <= start and end <= last for first, last in self.macros):
            return
        old = self.text(start, end)
        new += "\n" * (old.count("\n") - new.count("\n"))
        fault = {"file": self.name, "kind": kind, "line": self.source.count(b"\n", 0, start) + 1,
                 "start": start, "end": end, "old": old, "new": new}
        fault["id"] = hashlib.sha256(repr(sorted(fault.items())).encode()).hexdigest()[:8]
        self.faults.append(fault)

    def function(self, cursor):
        self.result = cursor.result_type.get_canonical().kind
        for child in cursor.get_children():
            if child.kind == Kind.COMPOUND_STMT:
                start, _ = span(child)
                if self.result == TypeKind.VOID:
                    self.add("early return", start, start + 1, "{ return;")
                elif self.result in SCALARS:
                    self.add("early return", start, start + 1, "{ return 0;")
                self.visit(child, cursor)

    def visit(self, cursor, parent, table=False):
        children = list(cursor.get_children())
        if cursor.kind == Kind.STATIC_ASSERT:
            return
        if cursor.kind in (Kind.INTEGER_LITERAL, Kind.FLOATING_LITERAL):
            self.constant(cursor, "table" if table else "constant")
        elif not table:
            self.node(cursor, parent, children)
        for child in children:
            self.visit(child, cursor, table)

    def constant(self, cursor, kind):
        start, end = span(cursor)
        text = self.text(start, end)
        if INTEGER.fullmatch(text):
            self.add(kind, start, end, f"({text} + 1)")
            if text.rstrip("uUlL").strip("0xX"):
                self.add(kind, start, end, f"({text} - 1)")
        elif REAL.fullmatch(text):
            self.add(kind, start, end, f"({text} * 1.5f)" if re.search("[1-9]", text) else "1.0f")

    def node(self, cursor, parent, children):
        start, end = span(cursor)
        kind = cursor.kind
        if kind in (Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR) and len(children) == 2:
            self.operator(span(children[0])[1], span(children[1])[0])
        elif kind == Kind.UNARY_OPERATOR:
            self.change_unary(start, end)
        elif kind in (Kind.IF_STMT, Kind.WHILE_STMT, Kind.CONDITIONAL_OPERATOR) and children:
            self.change_condition(kind, *span(children[0]))
        elif kind == Kind.RETURN_STMT and children:
            self.change_return_value(*span(children[0]))
        elif kind in (Kind.BREAK_STMT, Kind.CONTINUE_STMT):
            self.add("deleted jump", start, end, "")
        if kind == Kind.CALL_EXPR:
            self.swap_arguments(list(cursor.get_arguments()))
        if parent.kind in BODIES and self.is_action(cursor, start, end):
            self.add("deleted statement", start, end, "")

    def operator(self, start, end):
        """Returns the operator between two operands."""
        between = COMMENT.sub(lambda comment: b" " * len(comment[0]), self.source[start:end])
        sign = between.strip().decode(errors="replace")
        for new in OPERATORS.get(sign, []):
            at = start + between.index(sign.encode())
            kind = "relation" if sign in RELATIONS else "logic" if sign in ("&&", "||") else "arithmetic"
            self.add(kind, at, at + len(sign), new)

    def change_unary(self, start, end):
        text = self.text(start, end)
        for old, new in (("++", "--"), ("--", "++")):
            if text.startswith(old):
                return self.add("arithmetic", start, start + 2, new)
            if text.endswith(old):
                return self.add("arithmetic", end - 2, end, new)
        if text.startswith(("!", "-", "~")):
            self.add("dropped sign", start, start + 1, " ")

    def change_condition(self, kind, start, end):
        text = self.text(start, end)
        self.add("negated condition", start, end, f"!({text})")
        if kind == Kind.IF_STMT:
            self.add("condition never met", start, end, f"0 && ({text})")
            self.add("condition always met", start, end, f"1 || ({text})")

    def change_return_value(self, start, end):
        text = self.text(start, end)
        if self.result == TypeKind.BOOL:
            self.add("returned value", start, end, f"!({text})")
        elif self.result in SCALARS:
            if text != "0" and text != "NULL":
                self.add("returned value", start, end, "0")
            elif self.result != TypeKind.POINTER:
                self.add("returned value", start, end, "-1")

    def swap_arguments(self, arguments):
        for left, right in zip(arguments, arguments[1:]):
            if left.type.get_canonical().spelling != right.type.get_canonical().spelling:
                continue
            (start, middle), (after, end) = span(left), span(right)
            first, second = self.text(start, middle), self.text(after, end)
            if first != second and middle <= after:
                self.add("swapped arguments", start, end, second + self.text(middle, after) + first)

    def is_action(self, cursor, start, end):
        if cursor.kind in (Kind.CALL_EXPR, Kind.COMPOUND_ASSIGNMENT_OPERATOR, Kind.UNARY_OPERATOR):
            return True
        if cursor.kind == Kind.CSTYLE_CAST_EXPR:
            return self.text(start, end).endswith(")")
        if cursor.kind != Kind.BINARY_OPERATOR:
            return False
        left, right = cursor.get_children()
        return self.source[span(left)[1]:span(right)[0]].strip() == b"="


def span(cursor):
    return cursor.extent.start.offset, cursor.extent.end.offset


def apply_fault(source, fault):
    """Returns the file's bytes with the fault."""
    assert source[fault["start"]:fault["end"]].decode(errors="replace") == fault["old"]
    return source[:fault["start"]] + fault["new"].encode() + source[fault["end"]:]


def shuffle_by_kind(faults, seed):
    """Returns all faults of a folder in random order, from the seed; kinds have equal shares until they are used up."""
    draw = random.Random(seed)
    kinds = {}
    for fault in faults:
        kinds.setdefault(fault["kind"], []).append(fault)
    while kinds:
        kind = draw.choice(sorted(kinds))
        yield kinds[kind].pop(draw.randrange(len(kinds[kind])))
        if not kinds[kind]:
            del kinds[kind]
