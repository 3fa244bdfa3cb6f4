/*
 * Makes untrusted text (names in datasets and archives, messages of a daemon) safe for a terminal.
 * Escapes characters that a terminal would execute or that would disguise the text: control
 * characters and bytes that are not UTF-8 as \x1b; C1 controls, direction marks and format
 * characters as \u202e. All other characters, backslash included, stay unchanged, because the
 * output is for people; programs use --json. Stateless, any thread. A separate library that
 * everything may link.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* Returns the length of the prefix that needs no escape. */
size_t printable_span(const char *text, size_t size);
/* Writes the text; check ferror() for errors. */
void printable_put(FILE *file, const char *text, size_t size);
/*
 * Writes as many whole escaped characters as fit into memory. Does not allocate or terminate.
 * Returns the number of bytes written.
 */
size_t printable_write(char *to, size_t capacity, const char *text, size_t size);
/*
 * Writes a message and a line feed. Escapes the whole formatted message, so that no name in it can
 * start a new line.
 */
void printable_line(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns an escaped copy of the text, valid UTF-8; the caller frees it. NULL if out of memory. */
char *printable_copy(const char *text, size_t size);
