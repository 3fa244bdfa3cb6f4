#include "format/augment/grammar/steps.h"

#include <errno.h>
#include <stdlib.h>

const struct step_size *step_size_at(const struct step *step, uint64_t epoch)
{
	unsigned i = step->size_count;

	while (i > 1 && step->sizes[i - 1].epoch > epoch)
		i--;
	return i ? &step->sizes[i - 1] : &step->sizes[0];
}

void step_resize_size(const struct step_size *size, uint32_t width, uint32_t height,
		      uint64_t *ret_width, uint64_t *ret_height)
{
	if (size->height) {
		*ret_width = size->width;
		*ret_height = size->height;
	} else if (width <= height) {
		*ret_width = size->width;
		*ret_height = (uint64_t)size->width * height / width;
	} else {
		*ret_height = size->width;
		*ret_width = (uint64_t)size->width * width / height;
	}
}

int step_check_reflect(const struct step *step, uint64_t width, uint64_t height,
		       struct transform_error *error)
{
	if (!step->reflect || (step->pad[0] < width && step->pad[1] < height))
		return 0;
	return transform_fail(
		error, -EINVAL, step->position,
		"a border of %ux%u pixels cannot reflect a picture of %llu x %llu: it "
		"is at most %llux%llu, or give it a fill of numbers",
		step->pad[0], step->pad[1], (unsigned long long)width, (unsigned long long)height,
		(unsigned long long)width - 1, (unsigned long long)height - 1);
}

/* Computes the size after a step. 0 x 0 (unknown) stays unknown if the step sets no size. */
typedef int (*size_after)(const struct step *step, const struct step_size *size, uint64_t *width,
			  uint64_t *height, struct transform_error *error);

static int size_kept(const struct step *step, const struct step_size *size, uint64_t *width,
		     uint64_t *height, struct transform_error *error)
{
	return 0;
}

static int size_given(const struct step *step, const struct step_size *size, uint64_t *width,
		      uint64_t *height, struct transform_error *error)
{
	*width = size->width;
	*height = size->height;
	return 0;
}

static int size_resized(const struct step *step, const struct step_size *size, uint64_t *width,
			uint64_t *height, struct transform_error *error)
{
	if (size->height || *width)
		step_resize_size(size, (uint32_t)*width, (uint32_t)*height, width, height);
	return 0;
}

static int size_padded(const struct step *step, const struct step_size *size, uint64_t *width,
		       uint64_t *height, struct transform_error *error)
{
	*width += *width ? 2 * step->pad[0] : 0;
	*height += *height ? 2 * step->pad[1] : 0;
	return 0;
}

static int size_random_crop(const struct step *step, const struct step_size *size, uint64_t *width,
			    uint64_t *height, struct transform_error *error)
{
	uint64_t padded_width = *width + 2 * step->pad[0],
		 padded_height = *height + 2 * step->pad[1];

	if (*width && (padded_width < size->width || padded_height < size->height))
		return transform_fail(
			error, -EINVAL, step->position,
			"random_crop(%ux%u) does not fit into %llu x %llu pixels: put "
			"resize before it or give it padding",
			size->width, size->height, (unsigned long long)padded_width,
			(unsigned long long)padded_height);
	return size_given(step, size, width, height, error);
}

static const size_after sizes_after[STEP_GEOMETRY_COUNT] = {
#define STEP(constant, name, size, ...) [STEP_##constant] = size,
	STEPS_OF_GEOMETRY(STEP)
#undef STEP
};

static int step_size_after(const struct step *step, uint64_t epoch, uint64_t *width,
			   uint64_t *height, struct transform_error *error)
{
	int r = *width ? step_check_reflect(step, *width, *height, error) : 0;

	if (r < 0 || step->kind >= STEP_GEOMETRY_COUNT)
		return r;
	r = sizes_after[step->kind](step, step_size_at(step, epoch), width, height, error);
	if (r < 0)
		return r;
	if (*width > UINT32_MAX || *height > UINT32_MAX)
		return transform_fail(error, -E2BIG, step->position,
				      "the picture becomes %llu x %llu pixels, which is too large",
				      (unsigned long long)*width, (unsigned long long)*height);
	return 0;
}

int steps_size(const struct transform *transform, unsigned count, uint64_t epoch, uint32_t width,
	       uint32_t height, uint32_t *ret_width, uint32_t *ret_height,
	       struct transform_error *error)
{
	uint64_t w = width, h = height;

	for (unsigned i = 0; i < count; i++) {
		int r = step_size_after(&transform->steps[i], epoch, &w, &h, error);

		if (r < 0)
			return r;
	}
	if (w > TRANSFORM_SIDE_MAX || h > TRANSFORM_SIDE_MAX)
		return transform_fail(error, -E2BIG, -1,
				      "finished samples of %llu x %llu pixels are too large: a "
				      "side is at most %d",
				      (unsigned long long)w, (unsigned long long)h,
				      TRANSFORM_SIDE_MAX);
	*ret_width = (uint32_t)w;
	*ret_height = (uint32_t)h;
	return 0;
}

/*
 * Checks the first `count` steps in every epoch in which a size changes, for a stored size (0 x 0
 * if unknown). Sets *ret_known if the result is known in all of them.
 */
static int check_epochs(const struct transform *transform, unsigned count, uint32_t width,
			uint32_t height, int *ret_known, struct transform_error *error)
{
	int known = 1;

	for (unsigned i = 0; i <= count; i++) {
		const struct step *step = i ? &transform->steps[i - 1] : NULL;

		for (unsigned j = 0; j < (step ? step->size_count : 1); j++) {
			uint32_t w = 0, h = 0;
			int r = steps_size(transform, count, step ? step->sizes[j].epoch : 0, width,
					   height, &w, &h, error);

			if (r < 0)
				return r;
			known &= w > 0;
		}
	}
	*ret_known = known;
	return 0;
}

int transform_parse(const char *text, struct transform **ret_transform,
		    struct transform_error *error)
{
	struct transform *transform = calloc(1, sizeof(*transform));
	int known, r;

	if (!transform)
		return transform_fail(error, -ENOMEM, -1, "out of memory");
	transform->element = TRANSFORM_U8;
	transform->layout = TRANSFORM_NHWC;
	transform->channels = 3;
	r = grammar_parse(text, transform, error);
	if (r == 0)
		r = check_epochs(transform, transform->step_count, 0, 0, &known, error);
	if (r < 0) {
		free(transform);
		return r;
	}
	transform->delivered_steps = transform->step_count;
	*ret_transform = transform;
	return 0;
}

void transform_free(struct transform *transform)
{
	free(transform);
}

int transform_has_size(const struct transform *transform)
{
	int known = 0;

	check_epochs(transform, transform->step_count, 0, 0, &known, NULL);
	return known;
}

bool steps_have_size(const struct transform *transform, unsigned count)
{
	int known = 0;
	int r = check_epochs(transform, count, transform->fixed_width, transform->fixed_height,
			     &known, NULL);

	return r == 0 && known;
}

int transform_fix_size(struct transform *transform, uint32_t width, uint32_t height,
		       struct transform_error *error)
{
	int known, r;

	if (width == 0 || height == 0 || width > PACKIMG_SIDE_MAX || height > PACKIMG_SIDE_MAX)
		return transform_fail(error, -EINVAL, -1, "no image is %u x %u pixels", width,
				      height);
	r = check_epochs(transform, transform->step_count, width, height, &known, error);
	if (r < 0)
		return r;
	transform->fixed_width = width;
	transform->fixed_height = height;
	return 0;
}

int transform_needs_statistics(const struct transform *transform)
{
	return transform->statistics == STATISTICS_DATASET && !transform->statistics_known;
}

int transform_fix_statistics(struct transform *transform, const double mean[3], const double std[3],
			     struct transform_error *error)
{
	for (int i = 0; i < 3; i++)
		if (!(mean[i] >= 0 && mean[i] <= 255 && std[i] > 0 && std[i] <= 255))
			return transform_fail(
				error, -EINVAL, -1,
				"normalize(dataset): channel %d has mean %.7g and std %.7g, which "
				"cannot be; give mean= and std= instead",
				i, mean[i], std[i]);
	for (int i = 0; transform->statistics == STATISTICS_DATASET && i < 3; i++) {
		transform->mean[i] = mean[i] / 255;
		transform->std[i] = std[i] / 255;
	}
	transform->statistics_known = true;
	return 0;
}

static size_t element_size(enum transform_element element)
{
	return element == TRANSFORM_U8 ? 1 : element == TRANSFORM_F32 ? 4 : 2;
}

void transform_shape(const struct transform *transform, uint64_t epoch,
		     struct transform_shape *ret_shape)
{
	uint32_t width = 0, height = 0;

	steps_size(transform, transform->delivered_steps, epoch, transform->fixed_width,
		   transform->fixed_height, &width, &height, NULL);
	*ret_shape = (struct transform_shape){
		.height = height,
		.width = width,
		.channels = transform->channels,
		.element = transform->element,
		.layout = transform->layout,
		.sample_size = (size_t)width * height * transform->channels *
			       element_size(transform->element),
	};
}

size_t transform_sample_size_max(const struct transform *transform)
{
	struct transform_shape shape;
	size_t max;

	transform_shape(transform, 0, &shape);
	max = shape.sample_size;
	for (unsigned i = 0; i < transform->step_count; i++)
		for (unsigned j = 0; j < transform->steps[i].size_count; j++) {
			transform_shape(transform, transform->steps[i].sizes[j].epoch, &shape);
			max = shape.sample_size > max ? shape.sample_size : max;
		}
	return max;
}
