/* Image changes that the daemon defers to the device, against deferred_apply(), byte for byte. */
#include "tests/kernels/cuda/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/deferred.h"

#include <stdlib.h>

struct deferred_case {
	uint32_t width, height, channels; /* as delivered by the daemon */
	uint32_t to_width, to_height;
	uint32_t flags;
	uint32_t changes;
};

enum { IMAGES = 5 };

static const struct deferred_case cases[] = {
	{32, 32, 3, 32, 32, 0, 0},
	{32, 32, 3, 32, 32, DEFERRED_MIRROR_X, 4},
	{9, 7, 4, 9, 7, DEFERRED_MIRROR_Y, 8},
	{40, 24, 3, 19, 17, DEFERRED_MIRROR_X | DEFERRED_MIRROR_Y, 6},
	{12, 9, 3, 20, 15, 0, 3},
	{12, 9, 4, 20, 15, DEFERRED_REFLECT | DEFERRED_MIRROR_X, 8},
	{1, 1, 3, 1, 1, DEFERRED_REFLECT, 8},
	{3, 2, 3, 1, 1, 0, 8},
};

static uint32_t below(uint64_t seed, uint64_t counter, uint32_t bound)
{
	return (uint32_t)(kernels_uniform(seed, counter) * bound);
}

static struct deferred_change make_change(const struct deferred_case *k, uint64_t seed)
{
	struct deferred_change change = {
		.kind = 1 + below(seed, 0, DEFERRED_KINDS - 1),
		.factor = (float)(kernels_uniform(seed, 1) * 2),
		.pixel = below(seed, 3, 1 << 24),
		.width = (uint16_t)below(seed, 4, k->to_width + 1),
		.height = (uint16_t)below(seed, 5, k->to_height + 1),
		.key = {below(seed, 6, UINT32_MAX), below(seed, 7, UINT32_MAX)},
	};

	change.left = (uint16_t)below(seed, 8, k->to_width - change.width + 1);
	change.top = (uint16_t)below(seed, 9, k->to_height - change.height + 1);
	if (change.kind == DEFERRED_HUE)
		change.factor -= 1;
	else if (change.kind == DEFERRED_SOLARIZE)
		change.factor *= 127;
	else if (change.kind == DEFERRED_POSTERIZE)
		change.factor = (float)below(seed, 2, 9);
	else if (change.kind <= DEFERRED_SATURATION) /* ignored for brightness */
		change.rest = 1 - change.factor;
	return change;
}

/* Returns the offset of a window inside the image, or as far outside as allowed. */
static int32_t make_offset(uint32_t from, uint32_t to, double where)
{
	int32_t room = (int32_t)from - (int32_t)to;

	return (int32_t)(where * (room < 0 ? room - 1 : room + 1));
}

static struct deferred make_deferred(const struct deferred_case *k, uint64_t seed)
{
	struct deferred deferred = {
		.left = make_offset(k->width, k->to_width, kernels_uniform(seed, 100)),
		.top = make_offset(k->height, k->to_height, kernels_uniform(seed, 101)),
		.width = k->to_width,
		.height = k->to_height,
		.flags = k->flags,
		.fill = 0x1203f0,
		.count = k->changes,
	};
	struct deferred read;

	for (uint32_t i = 0; i < k->changes; i++)
		deferred.changes[i] = make_change(k, seed * 1000 + i);
	assert_null(deferred_read(&deferred, sizeof(deferred), k->width, k->height, &read));
	return deferred;
}

static void check_deferred(const struct deferred_case *k, uint32_t images, uint64_t seed)
{
	size_t from = (size_t)k->width * k->height * k->channels,
	       to = (size_t)k->to_width * k->to_height * k->channels;
	uint8_t *delivered = kernels_zeros(images * from), *expected = kernels_zeros(images * to);
	struct deferred *deferred = calloc(images, sizeof(*deferred));
	struct array *out = new_bytes(NULL, images * to);

	for (size_t i = 0; delivered && i < images * from; i++)
		delivered[i] = (uint8_t)below(seed, 1000 + i, 256);
	for (uint32_t i = 0; i < images; i++) {
		deferred[i] = make_deferred(k, seed * 100 + i);
		if (delivered)
			deferred_apply(&deferred[i], delivered + i * from, k->width, k->height,
				       k->channels, expected + i * to);
	}
	const struct deferred_finish a = {
		.deferred = array_reads(new_bytes(deferred, images * sizeof(*deferred))),
		.delivered = array_reads(new_bytes(delivered, images * from)),
		.finished = array_writes(out),
		.count = images,
		.width = k->width,
		.height = k->height,
		.channels = k->channels,
	};

	if (!queued(deferred_finish(&kernels_device, &a)))
		expect_bytes(out, expected, "pixels");
	free(delivered);
	free(expected);
	free(deferred);
}

static void finish(const struct kernel_case *k, enum cuda_element element)
{
	for (uint64_t seed = 1; seed <= 4 && element == CUDA_F32; seed++)
		check_deferred(k->settings, IMAGES, seed);
}

static const struct kernel_shape any[] = {{1, 1, 1, 1}};
static const struct kernel_test tests[] = {CHECK_EACH(finish, any, cases)};

static void cropped(const struct kernel_case *k, enum cuda_element element)
{
	const struct deferred_case crop = {k->h + 8, k->w + 8, 3, k->w, k->h, DEFERRED_MIRROR_X, 0};

	check_deferred(&crop, k->n, 1);
}

static void changed(const struct kernel_case *k, enum cuda_element element)
{
	check_deferred(&(struct deferred_case){k->h, k->w, 3, k->w, k->h, 0, 5}, k->n, 1);
}

static const struct kernel_case timed[] = {
	{"deferred_finish", "crop and flip 232x232 to 224x224", cropped, 224, 224, 3},
	{"deferred_finish", "five changes of 224x224", changed, 224, 224, 3},
};

KERNELS_MAIN(&cuda_kernels, tests, timed)
