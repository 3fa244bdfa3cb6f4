#include "format/augment/grammar/transforms.h"
#include "format/augment/grammar/patches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool transform_is_of_boxes(enum transform_kind kind)
{
	return kind >= TRANSFORM_GEOMETRY_COUNT && kind < TRANSFORM_BOXES_COUNT;
}

const struct transform *pipeline_iou_crop(const struct pipeline *pipeline)
{
	for (unsigned i = 0; i < pipeline->transform_count; i++)
		if (pipeline->transforms[i].kind == TRANSFORM_IOU_CROP)
			return &pipeline->transforms[i];
	return NULL;
}

const struct transform *pipeline_mosaic_step(const struct pipeline *pipeline)
{
	bool first =
		pipeline->transform_count > 0 && pipeline->transforms[0].kind == TRANSFORM_MOSAIC;

	return first ? &pipeline->transforms[0] : NULL;
}

const struct transform_size *transform_size_at(const struct transform *transform, uint64_t epoch)
{
	unsigned i = transform->size_count;

	while (i > 1 && transform->sizes[i - 1].epoch > epoch)
		i--;
	return i ? &transform->sizes[i - 1] : &transform->sizes[0];
}

void transform_resize_size(const struct transform_size *size, uint32_t width, uint32_t height,
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

int transform_check_reflect(const struct transform *transform, uint64_t width, uint64_t height,
			    struct pipeline_error *error)
{
	if (!transform->reflect || (transform->pad[0] < width && transform->pad[1] < height))
		return 0;
	return pipeline_fail(error, -EINVAL, transform->position,
			     "a border of %ux%u pixels cannot reflect a picture of %llu x %llu: it "
			     "is at most %llux%llu, or give it a fill of numbers",
			     transform->pad[0], transform->pad[1], (unsigned long long)width,
			     (unsigned long long)height, (unsigned long long)width - 1,
			     (unsigned long long)height - 1);
}

/*
 * Computes the size after a transform. 0 x 0 (unknown) stays unknown if the transform sets no size.
 */
typedef int (*size_after)(const struct transform *transform, const struct transform_size *size,
			  uint64_t *width, uint64_t *height, struct pipeline_error *error);

static int size_kept(const struct transform *transform, const struct transform_size *size,
		     uint64_t *width, uint64_t *height, struct pipeline_error *error)
{
	return 0;
}

static int size_given(const struct transform *transform, const struct transform_size *size,
		      uint64_t *width, uint64_t *height, struct pipeline_error *error)
{
	*width = size->width;
	*height = size->height;
	return 0;
}

/* One patch: their number differs between samples. */
static int size_patch(const struct transform *transform, const struct transform_size *size,
		      uint64_t *width, uint64_t *height, struct pipeline_error *error)
{
	*width = *height = transform->patches.size;
	return 0;
}

static int size_resized(const struct transform *transform, const struct transform_size *size,
			uint64_t *width, uint64_t *height, struct pipeline_error *error)
{
	if (size->height || *width)
		transform_resize_size(size, (uint32_t)*width, (uint32_t)*height, width, height);
	return 0;
}

static int size_padded(const struct transform *transform, const struct transform_size *size,
		       uint64_t *width, uint64_t *height, struct pipeline_error *error)
{
	*width += *width ? 2 * transform->pad[0] : 0;
	*height += *height ? 2 * transform->pad[1] : 0;
	return 0;
}

static int size_unknown(const struct transform *transform, const struct transform_size *size,
			uint64_t *width, uint64_t *height, struct pipeline_error *error)
{
	*width = *height = 0;
	return 0;
}

static int size_random_crop(const struct transform *transform, const struct transform_size *size,
			    uint64_t *width, uint64_t *height, struct pipeline_error *error)
{
	uint64_t padded_width = *width + 2 * transform->pad[0],
		 padded_height = *height + 2 * transform->pad[1];

	if (*width && (padded_width < size->width || padded_height < size->height))
		return pipeline_fail(error, -EINVAL, transform->position,
				     "random_crop(%ux%u) does not fit into %llu x %llu pixels: put "
				     "resize before it or give it padding",
				     size->width, size->height, (unsigned long long)padded_width,
				     (unsigned long long)padded_height);
	return size_given(transform, size, width, height, error);
}

static const size_after sizes_after[TRANSFORM_GEOMETRY_COUNT] = {
#define TRANSFORM(constant, where, name, text, size, ...) [TRANSFORM_##constant] = size,
	TRANSFORMS_OF_GEOMETRY(TRANSFORM)
#undef TRANSFORM
};

static int transform_size_after(const struct transform *transform, uint64_t epoch, uint64_t *width,
				uint64_t *height, struct pipeline_error *error)
{
	int r = *width ? transform_check_reflect(transform, *width, *height, error) : 0;

	if (r < 0 || transform->kind >= TRANSFORM_GEOMETRY_COUNT)
		return r;
	r = sizes_after[transform->kind](transform, transform_size_at(transform, epoch), width,
					 height, error);
	if (r < 0)
		return r;
	if (*width > UINT32_MAX || *height > UINT32_MAX)
		return pipeline_fail(error, -E2BIG, transform->position,
				     "the picture becomes %llu x %llu pixels, which is too large",
				     (unsigned long long)*width, (unsigned long long)*height);
	return 0;
}

int pipeline_size_after(const struct pipeline *pipeline, unsigned count, uint64_t epoch,
			uint32_t width, uint32_t height, uint32_t *ret_width, uint32_t *ret_height,
			struct pipeline_error *error)
{
	uint64_t w = width, h = height;

	for (unsigned i = 0; i < count; i++) {
		int r = transform_size_after(&pipeline->transforms[i], epoch, &w, &h, error);

		if (r < 0)
			return r;
	}
	if (w > PIPELINE_SIDE_MAX || h > PIPELINE_SIDE_MAX)
		return pipeline_fail(error, -E2BIG, -1,
				     "finished samples of %llu x %llu pixels are too large: a "
				     "side is at most %d",
				     (unsigned long long)w, (unsigned long long)h,
				     PIPELINE_SIDE_MAX);
	*ret_width = (uint32_t)w;
	*ret_height = (uint32_t)h;
	return 0;
}

/*
 * Checks the first `count` transforms in every epoch in which a size changes, for a stored size (0
 * x 0 if unknown). Sets *ret_known if the resulting size is known in all of them.
 */
static int check_epochs(const struct pipeline *pipeline, unsigned count, uint32_t width,
			uint32_t height, int *ret_known, struct pipeline_error *error)
{
	int known = 1;

	for (unsigned i = 0; i <= count; i++) {
		const struct transform *transform = i ? &pipeline->transforms[i - 1] : NULL;

		for (unsigned j = 0; j < (transform ? transform->size_count : 1); j++) {
			uint32_t w = 0, h = 0;
			int r = pipeline_size_after(pipeline, count,
						    transform ? transform->sizes[j].epoch : 0,
						    width, height, &w, &h, error);

			if (r < 0)
				return r;
			known &= w > 0;
		}
	}
	*ret_known = known;
	return 0;
}

unsigned pipeline_view_copies(const struct pipeline *pipeline)
{
	unsigned copies = 0;

	for (unsigned i = 0; i < pipeline->view_count; i++)
		copies += pipeline->views[i]->copies;
	return copies;
}

unsigned pipeline_view_count(const struct pipeline *pipeline)
{
	return pipeline->view_count > 0 ? pipeline_view_copies(pipeline) : 1;
}

struct pipeline_view pipeline_view(const struct pipeline *pipeline, unsigned number)
{
	for (unsigned i = 0; i < pipeline->view_count; i++) {
		const struct pipeline *view = pipeline->views[i];

		if (number < view->copies)
			return (struct pipeline_view){view->view_name, number, view};
		number -= view->copies;
	}
	return (struct pipeline_view){"", 0, pipeline};
}

static const struct transform *bucket_resize_of(const struct pipeline *pipeline)
{
	for (unsigned i = 0; i < pipeline->transform_count; i++)
		if (pipeline->transforms[i].kind == TRANSFORM_BUCKET_RESIZE)
			return &pipeline->transforms[i];
	return NULL;
}

/* What follows bucket_resize keeps its size. */
static int check_bucket_resize(const struct pipeline *pipeline, struct pipeline_error *error)
{
	const struct transform *bucket = bucket_resize_of(pipeline);
	const struct transform *end = pipeline->transforms + pipeline->transform_count;

	for (const struct transform *next = bucket; next && ++next < end;)
		if (next->kind < TRANSFORM_GEOMETRY_COUNT && next->kind != TRANSFORM_HFLIP &&
		    next->kind != TRANSFORM_VFLIP)
			return pipeline_fail(
				error, -EINVAL, next->position,
				"%s would change the size that bucket_resize has made that of the "
				"batch's bucket: put it before bucket_resize, or leave it out",
				transform_name(next->kind));
	return 0;
}

/* A mosaic is made before everything else, of whole samples and their boxes. */
static int check_mosaic(const struct pipeline *pipeline, struct pipeline_error *error)
{
	const struct transform *mosaic = pipeline_mosaic_step(pipeline);

	for (unsigned i = 1; i < pipeline->transform_count; i++) {
		const struct transform *step = &pipeline->transforms[i];

		if (step->kind == TRANSFORM_MOSAIC)
			return pipeline_fail(error, -EINVAL, step->position,
					     mosaic ? "mosaic is given twice"
						    : "mosaic joins samples as they are stored: "
						      "put it before all other steps");
		if (mosaic &&
		    (step->kind == TRANSFORM_IOU_CROP || step->kind == TRANSFORM_BUCKET_RESIZE))
			return pipeline_fail(error, -EINVAL, step->position,
					     "%s chooses by the boxes or the shape of one sample, "
					     "and mosaic joins four: leave one of them out",
					     transform_name(step->kind));
	}
	if (mosaic && pipeline->view_name[0])
		return pipeline_fail(error, -EINVAL, mosaic->position,
				     "mosaic is for pipelines that make one image of each sample: "
				     "leave it or the views out");
	if (mosaic && pipeline->paste.position >= 0)
		return pipeline_fail(error, -EINVAL, pipeline->paste.position,
				     "copy_paste pastes objects of one sample on one other, and "
				     "mosaic joins four: leave one of them out");
	if (mosaic && pipeline_mixes(pipeline))
		return pipeline_fail(error, -EINVAL, pipeline->batch.position,
				     "mixup and cutmix blend images of two samples, and mosaic "
				     "joins four: leave one of them out");
	return 0;
}

static int check_paste(const struct pipeline *pipeline, struct pipeline_error *error)
{
	if (pipeline->paste.position < 0 || !pipeline_mixes(pipeline))
		return 0;
	return pipeline_fail(error, -EINVAL, pipeline->batch.position,
			     "mixup and cutmix blend images without their boxes and masks, which "
			     "copy_paste pastes: leave one of them out");
}

/* Checks that a sample of known or unknown size can pass, and completes what parsing set. */
static int finish_parsing(struct pipeline *pipeline, struct pipeline_error *error)
{
	int known, r = 0;

	for (unsigned i = 0; r == 0 && i < pipeline->view_count; i++)
		r = finish_parsing(pipeline->views[i], error);
	if (r == 0 && pipeline->view_count == 0)
		r = patches_check(pipeline, error);
	if (r == 0 && pipeline->view_count == 0)
		r = check_bucket_resize(pipeline, error);
	if (r == 0 && pipeline->view_count == 0)
		r = check_mosaic(pipeline, error);
	if (r == 0 && pipeline->view_count == 0)
		r = check_paste(pipeline, error);
	if (r == 0 && pipeline->view_count == 0)
		r = check_epochs(pipeline, pipeline->transform_count, 0, 0, &known, error);
	pipeline->delivered_transforms = pipeline->transform_count;
	return r;
}

int pipeline_parse_views(const char *text, struct pipeline **ret_pipeline,
			 struct pipeline_error *error)
{
	struct pipeline *pipeline = calloc(1, sizeof(*pipeline));

	if (!pipeline)
		return pipeline_fail(error, -ENOMEM, -1, "out of memory");
	pipeline->element = PIPELINE_U8;
	pipeline->layout = PIPELINE_NHWC;
	pipeline->channels = 3;
	pipeline->batch.position = -1;
	pipeline->paste.position = -1;
	pipeline->batch_p[0] = pipeline->batch_p[1] = -1;
	int r = grammar_parse(text, pipeline, error);
	if (r == 0)
		r = finish_parsing(pipeline, error);
	if (r < 0) {
		pipeline_free(pipeline);
		return r;
	}
	*ret_pipeline = pipeline;
	return 0;
}

/* Fails for what more than one picture of one sample needs. */
static int check_single(const struct pipeline *pipeline, struct pipeline_error *error)
{
	if (pipeline->view_count > 0)
		return pipeline_fail(error, -EINVAL, -1,
				     "one finished picture of each sample is made here, and the "
				     "pipeline has views: write one without them");
	if (pipeline->batch.position >= 0)
		return pipeline_fail(error, -EINVAL, pipeline->batch.position,
				     "pictures of single samples are made here, and mixup, cutmix "
				     "and targets are for batches: leave them out");
	if (pipeline->paste.position >= 0)
		return pipeline_fail(error, -EINVAL, pipeline->paste.position,
				     "pictures of single samples are made here, and copy_paste "
				     "pastes objects of another: leave it out");
	if (pipeline_mosaic_step(pipeline))
		return pipeline_fail(error, -EINVAL, pipeline->transforms[0].position,
				     "pictures of single samples are made here, and mosaic joins "
				     "four: put resize or random_resized_crop in its place");
	if (pipeline_patch_step(pipeline))
		return pipeline_fail(error, -EINVAL, pipeline_patch_step(pipeline)->position,
				     "whole pictures are made here, and patch_resize divides them "
				     "into patches: put resize in its place");
	return 0;
}

int pipeline_parse(const char *text, struct pipeline **ret_pipeline, struct pipeline_error *error)
{
	struct pipeline *pipeline;
	int r = pipeline_parse_views(text, &pipeline, error);

	if (r < 0)
		return r;
	r = check_single(pipeline, error);
	if (r < 0)
		pipeline_free(pipeline);
	else
		*ret_pipeline = pipeline;
	return r;
}

const struct pipeline_paste *pipeline_paste(const struct pipeline *pipeline)
{
	return &pipeline->paste;
}

const struct pipeline_batch *pipeline_batch(const struct pipeline *pipeline)
{
	return &pipeline->batch;
}

bool pipeline_mixes(const struct pipeline *pipeline)
{
	return pipeline->batch.mix.mixup > 0 || pipeline->batch.mix.cutmix > 0;
}

const struct pipeline_value *pipeline_values(const struct pipeline *pipeline, unsigned *ret_count)
{
	*ret_count = pipeline->value_count;
	return pipeline->values;
}

const struct pipeline_value *pipeline_value(const struct pipeline *pipeline, const char *name)
{
	for (unsigned i = 0; i < pipeline->value_count; i++)
		if (strcmp(pipeline->values[i].name, name) == 0)
			return &pipeline->values[i];
	return NULL;
}

uint32_t pipeline_value_bit(const struct pipeline *pipeline, const char *name)
{
	const struct pipeline_value *value = pipeline_value(pipeline, name);

	return value ? 1u << (value - pipeline->values) : 0;
}

void pipeline_free(struct pipeline *pipeline)
{
	for (unsigned i = 0; pipeline && i < pipeline->view_count; i++)
		free(pipeline->views[i]);
	free(pipeline);
}

int pipeline_has_size(const struct pipeline *pipeline)
{
	int known = 0;

	for (unsigned i = 0; i < pipeline->view_count; i++)
		if (!pipeline_has_size(pipeline->views[i]))
			return 0;
	if (pipeline->view_count > 0)
		return 1;
	check_epochs(pipeline, pipeline->transform_count, 0, 0, &known, NULL);
	return known;
}

bool pipeline_size_known_after(const struct pipeline *pipeline, unsigned count)
{
	int known = 0;
	int r = check_epochs(pipeline, count, pipeline->fixed_width, pipeline->fixed_height, &known,
			     NULL);

	return r == 0 && known;
}

/* Returns the last transform that gives samples different sizes; there is one. */
static enum transform_kind last_of_unknown_size(const struct pipeline *pipeline)
{
	unsigned i = pipeline->transform_count;

	do {
		i--;
	} while (i && (pipeline->transforms[i].kind >= TRANSFORM_GEOMETRY_COUNT ||
		       sizes_after[pipeline->transforms[i].kind] != size_unknown));
	return pipeline->transforms[i].kind;
}

int pipeline_fix_size(struct pipeline *pipeline, uint32_t width, uint32_t height,
		      struct pipeline_error *error)
{
	int known;

	if (width == 0 || height == 0 || width > PACKIMG_SIDE_MAX || height > PACKIMG_SIDE_MAX)
		return pipeline_fail(error, -EINVAL, -1, "no image is %u x %u pixels", width,
				     height);
	for (unsigned i = 0; i < pipeline->view_count; i++) {
		/* Views that set a size take samples of any. */
		int r = pipeline_has_size(pipeline->views[i])
				? 0
				: pipeline_fix_size(pipeline->views[i], width, height, error);

		if (r < 0)
			return r;
	}
	if (pipeline->view_count > 0)
		return 0;
	if (bucket_resize_of(pipeline))
		return pipeline_fail(error, -EINVAL, bucket_resize_of(pipeline)->position,
				     "bucket_resize makes samples of the size of a feed's buckets, "
				     "and there are none here: use a feed with buckets, or a "
				     "transform that sets the size, such as resize(%ux%u)",
				     width, height);
	int r = check_epochs(pipeline, pipeline->transform_count, width, height, &known, error);
	if (r < 0)
		return r;
	if (!known)
		return pipeline_fail(error, -EINVAL, -1,
				     "samples would have different sizes: put a transform that "
				     "sets the size, such as resize(%ux%u), after %s",
				     width, height, transform_name(last_of_unknown_size(pipeline)));
	pipeline->fixed_width = width;
	pipeline->fixed_height = height;
	return 0;
}

bool pipeline_takes_buckets(const struct pipeline *pipeline)
{
	for (unsigned i = 0; i < pipeline->view_count; i++)
		if (pipeline_takes_buckets(pipeline->views[i]))
			return true;
	return bucket_resize_of(pipeline) != NULL;
}

int pipeline_fix_buckets(struct pipeline *pipeline, const struct pipeline_size *sizes,
			 unsigned count, struct pipeline_error *error)
{
	struct pipeline_size most = {0, 0};

	for (unsigned i = 0; i < count; i++) {
		if (sizes[i].width == 0 || sizes[i].height == 0 ||
		    sizes[i].width > PIPELINE_SIDE_MAX || sizes[i].height > PIPELINE_SIDE_MAX)
			return pipeline_fail(error, -EINVAL, -1,
					     "bucket %u is %u x %u pixels: a side is 1 to %d", i,
					     sizes[i].width, sizes[i].height, PIPELINE_SIDE_MAX);
		if ((uint64_t)sizes[i].width * sizes[i].height > (uint64_t)most.width * most.height)
			most = sizes[i];
	}
	for (unsigned i = 0; i < pipeline->view_count; i++)
		if (pipeline_takes_buckets(pipeline->views[i]))
			pipeline_fix_buckets(pipeline->views[i], sizes, count, NULL);
	if (!pipeline_takes_buckets(pipeline))
		return pipeline_fail(error, -EINVAL, -1,
				     "the feed has buckets, but its pipeline makes no use of them: "
				     "add bucket_resize, in place of what sets the size");
	for (unsigned i = 0; i < pipeline->transform_count; i++)
		if (pipeline->transforms[i].kind == TRANSFORM_BUCKET_RESIZE)
			pipeline->transforms[i].sizes[0] =
				(struct transform_size){.width = most.width, .height = most.height};
	return 0;
}

int pipeline_needs_statistics(const struct pipeline *pipeline)
{
	for (unsigned i = 0; i < pipeline->view_count; i++)
		if (pipeline_needs_statistics(pipeline->views[i]))
			return 1;
	return pipeline->view_count == 0 && pipeline->statistics == STATISTICS_DATASET &&
	       !pipeline->statistics_known;
}

int pipeline_fix_statistics(struct pipeline *pipeline, const double mean[3], const double std[3],
			    struct pipeline_error *error)
{
	for (int i = 0; i < 3; i++)
		if (!(mean[i] >= 0 && mean[i] <= 255 && std[i] > 0 && std[i] <= 255))
			return pipeline_fail(
				error, -EINVAL, -1,
				"normalize(dataset): channel %d has mean %.7g and std %.7g, which "
				"cannot be; give mean= and std= instead",
				i, mean[i], std[i]);
	for (unsigned i = 0; i < pipeline->view_count; i++)
		pipeline_fix_statistics(pipeline->views[i], mean, std, NULL);
	for (int i = 0; pipeline->statistics == STATISTICS_DATASET && i < 3; i++) {
		pipeline->mean[i] = mean[i] / 255;
		pipeline->std[i] = std[i] / 255;
	}
	pipeline->statistics_known = true;
	return 0;
}

static size_t element_size(enum pipeline_element element)
{
	return element == PIPELINE_U8 ? 1 : element == PIPELINE_F32 ? 4 : 2;
}

void pipeline_shape(const struct pipeline *pipeline, uint64_t epoch,
		    struct pipeline_shape *ret_shape)
{
	pipeline_shape_in(pipeline, epoch, (struct pipeline_size){0, 0}, ret_shape);
}

void pipeline_shape_in(const struct pipeline *pipeline, uint64_t epoch, struct pipeline_size bucket,
		       struct pipeline_shape *ret_shape)
{
	uint32_t width = 0, height = 0;

	pipeline_size_after(pipeline, pipeline->delivered_transforms, epoch, pipeline->fixed_width,
			    pipeline->fixed_height, &width, &height, NULL);
	if (bucket.width > 0 && (bucket_resize_of(pipeline) || pipeline_patch_step(pipeline))) {
		width = bucket.width;
		height = bucket.height;
	}
	*ret_shape = (struct pipeline_shape){
		.height = height,
		.width = width,
		.channels = pipeline->channels,
		.element = pipeline->element,
		.layout = pipeline->layout,
		.sample_size = (size_t)width * height * pipeline->channels *
			       element_size(pipeline->element),
	};
}

size_t pipeline_sample_size_max(const struct pipeline *pipeline)
{
	struct pipeline_shape shape;

	pipeline_shape(pipeline, 0, &shape);
	size_t max = shape.sample_size;
	if (pipeline_patch_step(pipeline))
		return max * pipeline_patches_max(pipeline);
	for (unsigned i = 0; i < pipeline->transform_count; i++)
		for (unsigned j = 0; j < pipeline->transforms[i].size_count; j++) {
			pipeline_shape(pipeline, pipeline->transforms[i].sizes[j].epoch, &shape);
			max = shape.sample_size > max ? shape.sample_size : max;
		}
	return max;
}
