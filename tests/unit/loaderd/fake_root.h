/*
 * A temporary directory that stands in for the root directory, for tests of code that reads /proc
 * and /sys. Paths are absolute within it.
 */
#pragma once

extern char fake_root[];

/* For TEST_MAIN(). */
int fake_root_setup(void **state);
int fake_root_teardown(void **state);
/* Removes all files and directories in it. */
void fake_root_clear(void);
/* Writes a file. Creates missing directories. */
void fake_root_write(const char *path, const char *text);
