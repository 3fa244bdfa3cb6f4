#include "tools/packimg/view/panel.h"

#include "format/augment/frame.h"
#include "format/base/copy_once.h"
#include "format/base/half.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/view/colours.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void panel_deinit(struct panel *panel)
{
	buffer_deinit(&panel->rgb);
	buffer_deinit(&panel->mask);
	shapes_deinit(&panel->shapes);
}

/* ---- the pipeline ---- */

static int fix_size(struct panel_pipeline *pipeline, const struct packimg *dataset,
		    struct packimg_error *error)
{
	struct packimg_sample sample;
	struct pipeline_error fault;

	if (pipeline_has_size(pipeline->parsed))
		return 0;
	if (packimg_sample(dataset, 0, &sample))
		return packimg_fail(error, -EBADMSG, "the first index record is damaged");
	int r = pipeline_fix_size(pipeline->parsed, sample.width, sample.height, &fault);
	return r ? packimg_fail(error, r, "--pipeline: %s", fault.text) : 0;
}

static int fix_statistics(struct panel_pipeline *pipeline, const struct packimg *dataset,
			  struct packimg_error *error)
{
	double mean[3], std[3];
	struct pipeline_error fault;

	if (!pipeline_needs_statistics(pipeline->parsed))
		return 0;
	if (packimg_statistics(dataset, mean, std))
		return packimg_fail(error, -EINVAL,
				    "--pipeline: normalize(dataset): the dataset records no "
				    "statistics; give mean= and std=");
	int r = pipeline_fix_statistics(pipeline->parsed, mean, std, &fault);
	return r ? packimg_fail(error, r, "--pipeline: %s", fault.text) : 0;
}

int panel_pipeline_open(struct panel_pipeline *pipeline, const struct packimg *dataset,
			struct packimg_error *error)
{
	struct pipeline_error fault = {.position = -1};
	int r = pipeline_parse(pipeline->text, &pipeline->parsed, &fault);

	if (r && fault.position >= 0)
		return packimg_fail(error, r, "--pipeline: at byte %d: %s", fault.position,
				    fault.text);
	if (r)
		return packimg_fail(error, r, "--pipeline: %s", fault.text);
	r = pipeline_check_values(pipeline->parsed, packimg_schema(dataset), &fault);
	if (r)
		return packimg_fail(error, r, "--pipeline: at byte %d: %s", fault.position,
				    fault.text);
	r = pipeline_find_boxes(pipeline->parsed, packimg_schema(dataset), &pipeline->boxes,
				&fault);
	if (r)
		return packimg_fail(error, r, "--pipeline: at byte %d: %s", fault.position,
				    fault.text);
	r = fix_size(pipeline, dataset, error);
	r = r ?: fix_statistics(pipeline, dataset, error);
	if (r)
		return r;
	pipeline_shape(pipeline->parsed, pipeline->epoch, &pipeline->shape);
	pipeline->moves_shapes = pipeline_check_frame(pipeline->parsed, true, &fault) == 0;
	if (!pipeline->moves_shapes)
		snprintf(pipeline->refusal, sizeof(pipeline->refusal), "%s", fault.text);
	if (!pipeline->moves_shapes && pipeline->boxes >= 0)
		return packimg_fail(error, -EINVAL, "--pipeline: %s", fault.text);
	pipeline->moves_masks = pipeline_check_frame(pipeline->parsed, false, NULL) == 0;
	return 0;
}

void panel_pipeline_close(struct panel_pipeline *pipeline)
{
	pipeline_free(pipeline->parsed);
}

int panel_maker_init(struct panel_maker *maker, const struct packimg *dataset, uint32_t side_max,
		     struct panel_pipeline *pipeline)
{
	*maker = (struct panel_maker){
		.dataset = dataset, .side_max = side_max, .pipeline = pipeline};
	int r = image_reader_init(&maker->reader);

	r = r ?: resize_new(&maker->resize);
	if (r || !pipeline)
		return r;
	r = pipeline_scratch_new(&maker->scratch);
	if (!r)
		pipeline_scratch_limit(maker->scratch, IMAGE_MEMORY_MAX);
	return r;
}

void panel_maker_deinit(struct panel_maker *maker)
{
	image_reader_deinit(&maker->reader);
	resize_free(maker->resize);
	pipeline_scratch_free(maker->scratch);
	buffer_deinit(&maker->bytes);
	buffer_deinit(&maker->boxes);
}

/* ---- common to both kinds of picture ---- */

static void panel_reset(struct panel *panel)
{
	panel->width = panel->height = 0;
	panel->has_mask = false;
	panel->shapes.count = panel->shapes.point_count = 0;
	panel->shapes.left_out = 0;
	panel->note[0] = panel->fault[0] = '\0';
}

static int panel_resize(struct panel *panel, uint32_t width, uint32_t height)
{
	if (buffer_reserve(&panel->rgb, (size_t)width * height * 3))
		return -ENOMEM;
	panel->rgb.size = (size_t)width * height * 3;
	panel->width = width;
	panel->height = height;
	return 0;
}

/* Ends a failed picture. Returns the result of panel_stored(). */
static int panel_fail(struct panel *panel, int r, const struct packimg_error *error)
{
	if (r == -ENOMEM)
		return r;
	panel_reset(panel);
	snprintf(panel->fault, sizeof(panel->fault), "%s", text_after_sample(error->text));
	return 1;
}

/* Returns the element at this address, a mask's number. */
static int64_t number_at(enum packimg_element element, const uint8_t *at)
{
	uint8_t u8;
	uint16_t u16;
	int16_t i16;
	int32_t i32;

	switch (element) {
	case PACKIMG_ELEMENT_U8:
		memcpy(&u8, at, sizeof(u8));
		return u8;
	case PACKIMG_ELEMENT_U16:
		memcpy(&u16, at, sizeof(u16));
		return u16;
	case PACKIMG_ELEMENT_I16:
		memcpy(&i16, at, sizeof(i16));
		return i16;
	default:
		memcpy(&i32, at, sizeof(i32));
		return i32;
	}
}

/* Begins the mask layer, fully transparent, unless it exists. */
static int begin_mask(struct panel *panel)
{
	size_t size = (size_t)panel->width * panel->height * 4;

	if (panel->has_mask)
		return 0;
	if (buffer_reserve(&panel->mask, size))
		return -ENOMEM;
	memset(panel->mask.data, 0, size);
	panel->mask.size = size;
	panel->has_mask = true;
	return 0;
}

/* Adds a mask to the layer, scaled by nearest pixel. */
static void draw_mask(struct panel *panel, const struct packimg_raster *mask)
{
	for (uint32_t y = 0; y < panel->height; y++) {
		ptrdiff_t row = (ptrdiff_t)((uint64_t)y * mask->height / panel->height);

		for (uint32_t x = 0; x < panel->width; x++) {
			ptrdiff_t column = (ptrdiff_t)((uint64_t)x * mask->width / panel->width);
			int64_t number = number_at(mask->element, mask->data + row * mask->step_y +
									  column * mask->step_x);
			if (number == 0)
				continue;
			struct colour colour = colour_of(number);
			uint8_t *at = panel->mask.data + ((size_t)y * panel->width + x) * 4;
			at[0] = colour.red;
			at[1] = colour.green;
			at[2] = colour.blue;
			at[3] = PANEL_MASK_ALPHA;
		}
	}
}

/* Finds a mask of the sample. Returns -ENODATA if the sample lacks it. */
static int find_mask(const struct panel_maker *maker, const struct packimg_sample *sample,
		     const struct schema_value *value, struct packimg_sample *ret_mask,
		     struct packimg_error *error)
{
	int r = packimg_image(maker->dataset, sample->index, value->number, ret_mask);

	if (r == -ENODATA)
		return r;
	r = r ?: packimg_sample_check(ret_mask);
	return r ? packimg_fail(error, r, "its mask \"%s\" is damaged", value->name) : 0;
}

typedef int (*mask_maker)(struct panel_maker *maker, const struct packimg_sample *sample,
			  const struct packimg_sample *mask, const struct schema_value *value,
			  struct packimg_raster *ret_raster, struct packimg_error *error);

static int draw_masks(struct panel_maker *maker, const struct packimg_sample *sample,
		      mask_maker make, struct panel *panel, struct packimg_error *error)
{
	const struct schema *schema = packimg_schema(maker->dataset);

	for (unsigned i = 0; i < schema->count; i++) {
		const struct schema_value *value = &schema->values[i];
		struct packimg_sample mask;
		struct packimg_raster raster;

		if (value->role != SCHEMA_MASK || !shapes_in_frame(schema, i))
			continue;
		int r = find_mask(maker, sample, value, &mask, error);
		if (r == -ENODATA)
			continue;
		r = r ?: make(maker, sample, &mask, value, &raster, error);
		if (r)
			return r;
		if (begin_mask(panel))
			return -ENOMEM;
		draw_mask(panel, &raster);
	}
	return 0;
}

/* ---- as stored ---- */

/* Scales a size down so that the longer side is at most side_max. */
static void shrink(uint32_t width, uint32_t height, uint32_t side_max, uint32_t ret_size[2])
{
	uint32_t longer = width > height ? width : height;
	double factor = longer > side_max ? (double)side_max / longer : 1;

	ret_size[0] = (uint32_t)fmax(1, round(width * factor));
	ret_size[1] = (uint32_t)fmax(1, round(height * factor));
}

/* Expands the grey pixels at the beginning of rgb to RGB, in place. */
static void spread_grey(uint8_t *rgb, size_t pixels)
{
	while (pixels-- > 0) {
		uint8_t grey = rgb[pixels];

		memset(rgb + pixels * 3, grey, 3);
	}
}

static int stored_picture(struct panel_maker *maker, const struct packimg_sample *sample,
			  struct panel *panel, struct packimg_error *error)
{
	struct resize_picture pixels;
	uint32_t size[2];

	shrink(sample->width, sample->height, maker->side_max, size);
	bool smaller = size[0] < sample->width || size[1] < sample->height;
	int r = image_read_sample(&maker->reader, sample, smaller ? size[0] : 0,
				  smaller ? size[1] : 0, &pixels, error);
	if (r)
		return r;
	if (panel_resize(panel, size[0], size[1]))
		return -ENOMEM;
	r = resize_image(maker->resize, &pixels, size[0], size[1], panel->rgb.data,
			 (size_t)size[0] * pixels.channels);
	if (r)
		return packimg_fail(error, r, "resizing to %ux%u: %s", size[0], size[1],
				    strerror(-r));
	if (pixels.channels == 1)
		spread_grey(panel->rgb.data, (size_t)size[0] * size[1]);
	return 0;
}

static int stored_mask(struct panel_maker *maker, const struct packimg_sample *sample,
		       const struct packimg_sample *mask, const struct schema_value *value,
		       struct packimg_raster *ret_raster, struct packimg_error *error)
{
	const struct packimg_region all = {.width = mask->width, .height = mask->height};
	int r = packimg_decode_raster(maker->reader.decoder, mask, &all, ret_raster, error);

	(void)sample;
	if (!r && (int)ret_raster->element != (int)value->element)
		r = packimg_fail(error, -EBADMSG,
				 "its mask \"%s\" has another element than the schema states",
				 value->name);
	return r;
}

static int stored_layers(struct panel_maker *maker, const struct packimg_sample *sample,
			 struct panel *panel, struct packimg_error *error)
{
	const struct shapes_source source = {
		.dataset = maker->dataset,
		.sample = sample,
		.frame_width = sample->width,
		.frame_height = sample->height,
		.width = panel->width,
		.height = panel->height,
	};
	int r = draw_masks(maker, sample, stored_mask, panel, error);

	return r ? r : shapes_read(&panel->shapes, &source, error);
}

int panel_stored(struct panel_maker *maker, const struct packimg_sample *sample,
		 struct panel *panel)
{
	struct packimg_error error = {.text = ""};

	panel_reset(panel);
	int r = stored_picture(maker, sample, panel, &error);
	r = r ?: stored_layers(maker, sample, panel, &error);
	if (r)
		return panel_fail(panel, r, &error);
	snprintf(panel->note, sizeof(panel->note), "stored: %u x %u %s", sample->width,
		 sample->height, codec_name(sample->codec));
	return 0;
}

/* ---- as delivered ---- */

static float float_at(enum pipeline_element element, const uint8_t *bytes, size_t i)
{
	uint16_t half;
	float wide;

	switch (element) {
	case PIPELINE_U8:
		return bytes[i];
	case PIPELINE_F32:
		memcpy(&wide, bytes + i * sizeof(wide), sizeof(wide));
		return wide;
	default:
		memcpy(&half, bytes + i * sizeof(half), sizeof(half));
		return element == PIPELINE_F16 ? half_to_float(half) : bfloat_to_float(half);
	}
}

/* The numbers shown as black and white. */
struct levels {
	float black, white;
};

/* 8-bit samples are shown unchanged; others are stretched from their minimum to their maximum. */
static struct levels levels_of(const struct pipeline_shape *shape, const uint8_t *bytes)
{
	size_t count = (size_t)shape->width * shape->height * shape->channels;
	struct levels levels = {INFINITY, -INFINITY};

	if (shape->element == PIPELINE_U8)
		return (struct levels){0, 255};
	for (size_t i = 0; i < count; i++) {
		float number = float_at(shape->element, bytes, i);

		if (!isfinite(number))
			continue;
		levels.black = fminf(levels.black, number);
		levels.white = fmaxf(levels.white, number);
	}
	return levels.black < levels.white ? levels : (struct levels){0, 1};
}

static uint8_t grey_of(struct levels levels, float number)
{
	float grey = (number - levels.black) / (levels.white - levels.black) * 255;

	/* Not-a-number is black. */
	return !(grey > 0) ? 0 : grey >= 255 ? 255 : (uint8_t)lrintf(grey);
}

static void to_rgb(const struct pipeline_shape *shape, struct levels levels, const uint8_t *bytes,
		   uint8_t *rgb)
{
	size_t pixels = (size_t)shape->width * shape->height;
	bool planes = shape->layout == PIPELINE_NCHW;

	for (size_t p = 0; p < pixels; p++) {
		for (uint32_t c = 0; c < 3; c++) {
			uint32_t channel = c < shape->channels ? c : 0;
			size_t i = planes ? channel * pixels + p : p * shape->channels + channel;
			float number = float_at(shape->element, bytes, i);

			rgb[p * 3 + c] = grey_of(levels, number);
		}
	}
}

/* Copies the boxes by which the pipeline chooses a crop, and gives them to the scratch. */
static int take_boxes(struct panel_maker *maker, const struct packimg_sample *sample,
		      struct packimg_error *error)
{
	const struct schema *schema = packimg_schema(maker->dataset);
	struct packimg_value stored;

	if (maker->pipeline->boxes < 0)
		return 0;
	const struct schema_value *value = &schema->values[maker->pipeline->boxes];
	int r = packimg_value(maker->dataset, sample->index, value->number, &stored);

	if (r)
		return packimg_fail(error, r, "its value of field \"%s\" is damaged", value->name);
	if (buffer_reserve(&maker->boxes, 2 * stored.size))
		return -ENOMEM;
	if (stored.size > 0)
		copy_once(maker->boxes.data, stored.bytes, stored.size);
	float *rows = (float *)(void *)maker->boxes.data;
	struct frame_boxes boxes = {
		.form = {value->role, value->format, (value->flags & SCHEMA_NORMALIZED) != 0,
			 pipeline_value_bit(maker->pipeline->parsed, value->name)},
		.rows = rows,
		.count = stored.size / (4 * sizeof(*rows)),
	};

	if (boxes.count > 0)
		boxes.corners = rows + 4 * boxes.count;
	pipeline_scratch_boxes(maker->scratch, &boxes);
	return 0;
}

static int delivered_picture(struct panel_maker *maker, const struct packimg_sample *sample,
			     struct panel *panel, struct packimg_error *error)
{
	const struct panel_pipeline *pipeline = maker->pipeline;
	const struct pipeline_shape *shape = &pipeline->shape;
	struct pipeline_times times = {0};
	static const char *const elements[] = {
		[PIPELINE_U8] = "u8",
		[PIPELINE_F16] = "f16",
		[PIPELINE_BF16] = "bf16",
		[PIPELINE_F32] = "f32",
	};

	if (buffer_reserve(&maker->bytes, shape->sample_size) ||
	    panel_resize(panel, shape->width, shape->height))
		return -ENOMEM;
	const struct schema *schema = packimg_schema(maker->dataset);
	int image = schema_stored(schema, SCHEMA_IN_INDEX, 0);

	if (image >= 0)
		pipeline_scratch_value(
			maker->scratch,
			pipeline_value_bit(pipeline->parsed, schema->values[image].name));
	int r = pipeline_apply(pipeline->parsed, maker->scratch, sample, pipeline->seed,
			       pipeline->epoch, maker->bytes.data, &times, error);
	if (r)
		return r;
	struct levels levels = levels_of(shape, maker->bytes.data);
	to_rgb(shape, levels, maker->bytes.data, panel->rgb.data);
	int used = snprintf(panel->note, sizeof(panel->note), "delivered: %u x %u %s", shape->width,
			    shape->height, elements[shape->element]);
	if (shape->element != PIPELINE_U8)
		snprintf(panel->note + used, sizeof(panel->note) - (size_t)used,
			 ", black is %.3g, white is %.3g", (double)levels.black,
			 (double)levels.white);
	return 0;
}

static int delivered_mask(struct panel_maker *maker, const struct packimg_sample *sample,
			  const struct packimg_sample *mask, const struct schema_value *value,
			  struct packimg_raster *ret_raster, struct packimg_error *error)
{
	const struct panel_pipeline *pipeline = maker->pipeline;
	const struct pipeline_value *named = pipeline_value(pipeline->parsed, value->name);
	struct frame_raster form = {
		.width = sample->width,
		.height = sample->height,
		.element = (enum packimg_element)value->element,
		.channels = value->dims == 3 ? value->shape[2] : 1,
	};
	size_t pixel = form.channels * packimg_element_size(form.element);

	if (named && named->fill_position >= 0)
		pipeline_value_fill(named, value->element, form.fill);
	if (buffer_reserve(&maker->bytes, pixel * pipeline->shape.width * pipeline->shape.height))
		return -ENOMEM;
	int r = pipeline_apply_raster(pipeline->parsed, maker->scratch, mask, &form, pipeline->seed,
				      pipeline->epoch, maker->bytes.data, NULL, error);
	if (r)
		return r;
	*ret_raster = (struct packimg_raster){
		.data = maker->bytes.data,
		.step_x = (ptrdiff_t)pixel,
		.step_y = (ptrdiff_t)(pixel * pipeline->shape.width),
		.width = pipeline->shape.width,
		.height = pipeline->shape.height,
		.channels = form.channels,
		.element = form.element,
	};
	return 0;
}

static int delivered_layers(struct panel_maker *maker, const struct packimg_sample *sample,
			    struct panel *panel, struct packimg_error *error)
{
	const struct panel_pipeline *pipeline = maker->pipeline;
	const struct shapes_source source = {
		.dataset = maker->dataset,
		.sample = sample,
		.pipeline = pipeline->parsed,
		.scratch = maker->scratch,
		.seed = pipeline->seed,
		.epoch = pipeline->epoch,
		.frame_width = panel->width,
		.frame_height = panel->height,
		.width = panel->width,
		.height = panel->height,
	};
	int r = 0;

	if (pipeline->moves_masks)
		r = draw_masks(maker, sample, delivered_mask, panel, error);
	return r || !pipeline->moves_shapes ? r : shapes_read(&panel->shapes, &source, error);
}

int panel_delivered(struct panel_maker *maker, const struct packimg_sample *sample,
		    struct panel *panel)
{
	struct packimg_error error = {.text = ""};

	panel_reset(panel);
	int r = take_boxes(maker, sample, &error);
	r = r ?: delivered_picture(maker, sample, panel, &error);
	r = r ?: delivered_layers(maker, sample, panel, &error);
	return r ? panel_fail(panel, r, &error) : 0;
}
