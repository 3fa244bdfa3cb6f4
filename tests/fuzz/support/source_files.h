/*
 * The files of one input, for targets that read packimg's sources. They are in a temporary folder,
 * which is removed at the end of the process.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SOURCE_FILE_PATH = 64 };

/* Prints the reason and aborts. */
void source_files_die(const char *what) __attribute__((noreturn));
/* Writes a file in the folder and stores its path in `path`. The caller unlinks it. */
void source_files_write(char path[static SOURCE_FILE_PATH], const char *name, const uint8_t *data,
			size_t size);
