#include "tests/unit/format/fixture.h"
#include "tests/unit/format/images.h"

struct packimg_decoder *decoder;
struct packimg_error error;
char *directory;

int decoder_setup(void **state)
{
	return packimg_decoder_new(&decoder);
}

int decoder_teardown(void **state)
{
	packimg_decoder_free(decoder);
	return 0;
}

int directory_setup(void **state)
{
	directory = image_directory();
	return 0;
}

int directory_teardown(void **state)
{
	image_directory_remove(directory);
	return 0;
}

const char *path_of(const char *name)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

int try_open(const char *path)
{
	struct packimg *dataset;
	int r = packimg_open(path, &dataset, &error);

	if (r == 0)
		packimg_close(dataset);
	return r;
}
