#include "tests/fuzz/support/source_files.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/fuzz-source-XXXXXX";

void source_files_die(const char *what)
{
	fprintf(stderr, "fuzz target: %s\n", what);
	abort();
}

static void remove_folder(void)
{
	rmdir(folder);
}

void source_files_write(char path[static SOURCE_FILE_PATH], const char *name, const uint8_t *data,
			size_t size)
{
	static bool made;

	if (!made && (!mkdtemp(folder) || atexit(remove_folder)))
		source_files_die("cannot create a folder");
	made = true;
	snprintf(path, SOURCE_FILE_PATH, "%s/%s", folder, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd))
		source_files_die("cannot write a file");
}
