/* Without the libavif that packimg was built with, AVIF is refused with the library's name. */
#include "tests/test.h"
#include "tools/packimg/image/image.h"

#include <dlfcn.h>

void *__wrap_dlopen(const char *name, int flags);

void *__wrap_dlopen(const char *name, int flags)
{
	assert_ptr_equal(strstr(name, "libavif.so."), name);
	return NULL;
}

static int probe(const char *data, size_t size, struct packimg_error *error)
{
	uint8_t padded[64 + IMAGE_PADDING] = {0};
	struct image_info info;

	memcpy(padded, data, size);
	return image_probe(padded, size, &info, error);
}

TEST(refusal_names_the_library)
{
	static const char avif[] = "\0\0\0\x10"
				   "ftypavif\0\0\0\0",
			  pixel[] = "P6 1 1 255 rgb";
	struct packimg_error error = {{0}};

	for (int i = 0; i < 2; i++) {
		assert_int_equal(probe(avif, sizeof(avif) - 1, &error), -ENOTSUP);
		assert_non_null(strstr(error.text, "AVIF image; install libavif.so."));
	}
	assert_int_equal(probe(pixel, sizeof(pixel) - 1, &error), 0);
}
