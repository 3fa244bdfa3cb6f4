/*
 * Text of strangers (names in datasets and archives, a daemon's sentences) for a person's terminal.
 * What a terminal would obey, or what would make it show something else than is there, is shown by
 * its number: control characters and bytes that are not UTF-8 as \x1b, C1 controls and marks of
 * direction and format as \u202e. Every other character stays as it is, a backslash too: this is
 * for eyes, --json for programs. Functions without state, any thread; a library of its own, which
 * everything may link.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* Bytes from the beginning of the text that are written as they are. */
size_t printable_span(const char *text, size_t size);
/* Writes the text; what fails is left to ferror(). */
void printable_put(FILE *file, const char *text, size_t size);
/*
 * The same into memory, without allocating: whole characters, as many as the room takes, and no
 * zero behind them. Returns how many bytes it wrote.
 */
size_t printable_write(char *to, size_t capacity, const char *text, size_t size);
/*
 * Writes a sentence and ends the line. All of it is escaped, so that no name in it begins a line of
 * its own.
 */
void printable_line(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * A copy of the text as it would be written, pure UTF-8; the caller frees it. NULL: out of memory.
 */
char *printable_copy(const char *text, size_t size);
