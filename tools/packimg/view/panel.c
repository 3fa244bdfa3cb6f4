#include "tools/packimg/view/panel.h"

#include "format/augment/frame.h"
#include "format/base/copy_once.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/view/colours.h"
#include "tools/packimg/view/grid.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void panel_deinit(struct panel *panel)
{
	buffer_deinit(&panel->rgb);
	buffer_deinit(&panel->mask);
	shapes_deinit(&panel->shapes);
}

unsigned panel_values(const struct schema *schema, unsigned ret_values[PANEL_VALUES_MAX])
{
	int first = schema_stored(schema, SCHEMA_IN_INDEX, 0);
	unsigned count = 0;

	ret_values[count++] = (unsigned)first;
	for (unsigned i = 0; i < schema->count; i++) {
		enum schema_role role = schema->values[i].role;

		if ((role == SCHEMA_IMAGE || role == SCHEMA_RASTER) && (int)i != first)
			ret_values[count++] = i;
	}
	return count;
}

int panel_maker_init(struct panel_maker *maker, const struct packimg *dataset, uint32_t side_max,
		     struct panel_pipeline *pipeline)
{
	*maker = (struct panel_maker){
		.dataset = dataset, .side_max = side_max, .pipeline = pipeline};
	maker->value_count = panel_values(packimg_schema(dataset), maker->values);
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

/* A value of a sample, and its bytes, which are verified. */
struct subject {
	const struct panel_maker *maker;
	const struct packimg_sample *sample; /* the index record */
	const struct schema_value *value;
	unsigned number; /* of the value in the schema */
	struct packimg_sample image;
};

static bool is_frame(const struct subject *subject)
{
	return schema_frame(packimg_schema(subject->maker->dataset), subject->number) ==
	       (int)subject->number;
}

static void panel_clear(struct panel *panel)
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
static int panel_fail(struct panel *panel, const struct subject *subject, int r,
		      const struct packimg_error *error)
{
	const bool several = subject->maker->value_count > 1;

	if (r == -ENOMEM)
		return r;
	panel_clear(panel);
	snprintf(panel->fault, sizeof(panel->fault), "%s%s%s", several ? subject->value->name : "",
		 several ? ": " : "", text_after_sample(error->text));
	return 1;
}

/* Ends a picture that the sample lacks or no feed delivers. Returns 0. */
static int panel_omit(struct panel *panel, const char *reason)
{
	panel_clear(panel);
	snprintf(panel->fault, sizeof(panel->fault), "%s: %s", panel->label, reason);
	return 0;
}

/* Sets the note: the value's name, if there are several, then the text. */
__attribute__((format(printf, 3, 4))) static void
panel_describe(struct panel *panel, const struct panel_maker *maker, const char *format, ...)
{
	va_list arguments;
	int used = 0;

	if (maker->value_count > 1)
		used = snprintf(panel->note, sizeof(panel->note), "%s, ", panel->label);
	va_start(arguments, format);
	vsnprintf(panel->note + used, sizeof(panel->note) - (size_t)used, format, arguments);
	va_end(arguments);
}

/* Adds the levels to the note and to the label. */
static void panel_describe_levels(struct panel *panel, const struct grid *grid,
				  const struct levels *levels)
{
	char text[PANEL_NOTE_MAX - SCHEMA_NAME_MAX - 40];
	size_t noted = strlen(panel->note), labelled = strlen(panel->label);

	grid_describe(grid, levels, text, sizeof(text));
	snprintf(panel->note + noted, sizeof(panel->note) - noted, ", %s", text);
	grid_describe_range(grid, levels, text, sizeof(text));
	snprintf(panel->label + labelled, sizeof(panel->label) - labelled, ": %s", text);
}

/*
 * Finds a value of the sample and verifies its bytes. Returns -ENODATA if the sample lacks it, else
 * an error with a message.
 */
static int find_image(const struct panel_maker *maker, const struct packimg_sample *sample,
		      const struct schema_value *value, struct packimg_sample *ret_image,
		      struct packimg_error *error)
{
	int r = 0;

	if (value->store == SCHEMA_IN_INDEX)
		*ret_image = *sample;
	else
		r = packimg_image(maker->dataset, sample->index, value->number, ret_image);
	if (r == -ENODATA)
		return r;
	r = r ?: packimg_sample_check(ret_image);
	return r ? packimg_fail(error, r, "its %s \"%s\" is damaged", schema_role_name(value->role),
				value->name)
		 : 0;
}

/* Begins a picture. Returns as find_image(). */
static int panel_begin(struct panel *panel, const struct panel_maker *maker,
		       const struct packimg_sample *sample, unsigned number,
		       struct subject *ret_subject, struct packimg_error *error)
{
	*ret_subject = (struct subject){.maker = maker, .sample = sample, .number = number};
	ret_subject->value = &packimg_schema(maker->dataset)->values[number];
	panel_clear(panel);
	snprintf(panel->label, sizeof(panel->label), "%s", ret_subject->value->name);
	return find_image(maker, sample, ret_subject->value, &ret_subject->image, error);
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
static void draw_mask(struct panel *panel, const struct grid *mask)
{
	uint8_t *at = panel->mask.data;

	for (uint32_t y = 0; y < panel->height; y++) {
		uint32_t row = (uint32_t)((uint64_t)y * mask->height / panel->height);

		for (uint32_t x = 0; x < panel->width; x++, at += 4) {
			uint32_t column = (uint32_t)((uint64_t)x * mask->width / panel->width);
			int64_t number = grid_integer(mask, column, row);

			if (number == 0)
				continue;
			struct colour colour = colour_of(number);
			at[0] = colour.red;
			at[1] = colour.green;
			at[2] = colour.blue;
			at[3] = PANEL_MASK_ALPHA;
		}
	}
}

/* Makes the pixels of a mask or raster. frame: the image to which they belong. */
typedef int (*grid_maker)(struct panel_maker *maker, const struct packimg_sample *frame,
			  const struct packimg_sample *image, const struct schema_value *value,
			  struct grid *ret_grid, struct packimg_error *error);

/* Draws the masks that are in the picture's frame. */
static int draw_masks(struct panel_maker *maker, const struct subject *subject, grid_maker make,
		      struct panel *panel, struct packimg_error *error)
{
	const struct schema *schema = packimg_schema(maker->dataset);

	for (unsigned i = 0; i < schema->count; i++) {
		const struct schema_value *value = &schema->values[i];
		struct packimg_sample mask;
		struct grid grid;

		if (value->role != SCHEMA_MASK || schema_frame(schema, i) != (int)subject->number)
			continue;
		int r = find_image(maker, subject->sample, value, &mask, error);
		if (r == -ENODATA)
			continue;
		r = r ?: make(maker, &subject->image, &mask, value, &grid, error);
		if (r)
			return r;
		if (begin_mask(panel))
			return -ENOMEM;
		draw_mask(panel, &grid);
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

static int stored_grid(struct panel_maker *maker, const struct packimg_sample *frame,
		       const struct packimg_sample *image, const struct schema_value *value,
		       struct grid *ret_grid, struct packimg_error *error)
{
	const struct packimg_region all = {.width = image->width, .height = image->height};
	const uint32_t channels = value->dims == 3 ? value->shape[2] : 1;
	struct packimg_raster raster;
	int r = packimg_decode_raster(maker->reader.decoder, image, &all, &raster, error);

	(void)frame;
	if (r)
		return r;
	if ((int)raster.element != (int)value->element || raster.channels != channels)
		return packimg_fail(
			error, -EBADMSG,
			"its %s \"%s\" has another element or number of channels than the schema "
			"states",
			schema_role_name(value->role), value->name);
	*ret_grid = (struct grid){
		.data = raster.data,
		.step_x = raster.step_x,
		.step_y = raster.step_y,
		.step_channel = (ptrdiff_t)packimg_element_size(raster.element),
		.width = raster.width,
		.height = raster.height,
		.channels = channels,
		.element = value->element,
	};
	return 0;
}

/* Bytes of images are shown as they are, other numbers from the smallest to the largest. */
static struct levels choose_levels(const struct schema_value *value, const struct grid *grid)
{
	if (value->role == SCHEMA_IMAGE && grid->element == SCHEMA_U8)
		return (struct levels){0, 255, 0};
	return grid_levels(grid);
}

static int stored_numbers(struct panel_maker *maker, const struct subject *subject,
			  struct panel *panel, struct packimg_error *error)
{
	const struct packimg_sample *image = &subject->image;
	uint32_t size[2];
	struct grid grid;
	int r = stored_grid(maker, image, image, subject->value, &grid, error);

	if (r)
		return r;
	shrink(grid.width, grid.height, maker->side_max, size);
	if (panel_resize(panel, size[0], size[1]))
		return -ENOMEM;
	const struct levels levels = choose_levels(subject->value, &grid);
	grid_draw(&grid, &levels, size[0], size[1], panel->rgb.data);
	panel_describe(panel, maker, "stored: %u x %u %s %s", image->width, image->height,
		       codec_name(image->codec), schema_element_name(grid.element));
	panel_describe_levels(panel, &grid, &levels);
	return 0;
}

static int stored_layers(struct panel_maker *maker, const struct subject *subject,
			 struct panel *panel, struct packimg_error *error)
{
	const struct shapes_source source = {
		.dataset = maker->dataset,
		.sample = &subject->image,
		.frame = subject->number,
		.frame_width = subject->image.width,
		.frame_height = subject->image.height,
		.width = panel->width,
		.height = panel->height,
	};
	int r = draw_masks(maker, subject, stored_grid, panel, error);

	return r ? r : shapes_read(&panel->shapes, &source, error);
}

int panel_stored(struct panel_maker *maker, const struct packimg_sample *sample, unsigned value,
		 struct panel *panel)
{
	struct packimg_error error = {.text = ""};
	struct subject subject;
	int r = panel_begin(panel, maker, sample, value, &subject, &error);

	if (r == -ENODATA)
		return panel_omit(panel, "missing");
	if (!r && schema_is_rgb(subject.value)) {
		r = stored_picture(maker, &subject.image, panel, &error);
		panel_describe(panel, maker, "stored: %u x %u %s", subject.image.width,
			       subject.image.height, codec_name(subject.image.codec));
	} else if (!r) {
		r = stored_numbers(maker, &subject, panel, &error);
	}
	if (!r && is_frame(&subject))
		r = stored_layers(maker, &subject, panel, &error);
	return r ? panel_fail(panel, &subject, r, &error) : 0;
}

/* ---- as delivered ---- */

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

static struct grid finished_grid(const struct pipeline_shape *shape, const uint8_t *bytes)
{
	const enum schema_element element = (enum schema_element)shape->element;
	const ptrdiff_t size = (ptrdiff_t)schema_element_size(element);
	const bool planes = shape->layout == PIPELINE_NCHW;
	const ptrdiff_t pixel = planes ? size : size * shape->channels;

	return (struct grid){
		.data = bytes,
		.step_x = pixel,
		.step_y = pixel * shape->width,
		.step_channel = planes ? size * shape->width * shape->height : size,
		.width = shape->width,
		.height = shape->height,
		.channels = shape->channels,
		.element = element,
	};
}

static int delivered_picture(struct panel_maker *maker, const struct subject *subject,
			     struct panel *panel, struct packimg_error *error)
{
	const struct panel_pipeline *pipeline = maker->pipeline;
	const struct pipeline_shape *shape = &pipeline->shape;
	struct pipeline_times times = {0};

	if (buffer_reserve(&maker->bytes, shape->sample_size) ||
	    panel_resize(panel, shape->width, shape->height))
		return -ENOMEM;
	pipeline_scratch_value(maker->scratch,
			       pipeline_value_bit(pipeline->parsed, subject->value->name));
	int r = pipeline_apply(pipeline->parsed, maker->scratch, &subject->image, pipeline->seed,
			       pipeline->epoch, maker->bytes.data, &times, error);
	if (r)
		return r;
	const struct grid grid = finished_grid(shape, maker->bytes.data);
	const struct levels levels = choose_levels(subject->value, &grid);
	grid_draw(&grid, &levels, grid.width, grid.height, panel->rgb.data);
	panel_describe(panel, maker, "delivered: %u x %u %s", shape->width, shape->height,
		       schema_element_name(grid.element));
	if (shape->element != PIPELINE_U8)
		panel_describe_levels(panel, &grid, &levels);
	return 0;
}

static int delivered_grid(struct panel_maker *maker, const struct packimg_sample *frame,
			  const struct packimg_sample *image, const struct schema_value *value,
			  struct grid *ret_grid, struct packimg_error *error)
{
	const struct panel_pipeline *pipeline = maker->pipeline;
	const struct pipeline_value *named = pipeline_value(pipeline->parsed, value->name);
	struct frame_raster form = {
		.width = frame->width,
		.height = frame->height,
		.element = (enum packimg_element)value->element,
		.channels = value->dims == 3 ? value->shape[2] : 1,
		.filter = named ? named->filter : PIPELINE_NEAREST,
	};
	/* Finished in their own element: a wider one has the same numbers. */
	const struct pipeline_shape shape = {
		.height = pipeline->shape.height,
		.width = pipeline->shape.width,
		.channels = form.channels,
		.element = (enum pipeline_element)form.element,
		.layout = PIPELINE_NHWC,
	};
	size_t pixel = form.channels * packimg_element_size(form.element);

	if (named && named->fill_position >= 0)
		pipeline_value_fill(named, value->element, form.fill);
	if (buffer_reserve(&maker->bytes, pixel * shape.width * shape.height))
		return -ENOMEM;
	int r = pipeline_apply_raster(pipeline->parsed, maker->scratch, image, &form,
				      pipeline->seed, pipeline->epoch, maker->bytes.data, NULL,
				      error);
	if (r)
		return r;
	*ret_grid = finished_grid(&shape, maker->bytes.data);
	return 0;
}

static int delivered_numbers(struct panel_maker *maker, const struct subject *subject,
			     struct panel *panel, struct packimg_error *error)
{
	const struct schema *schema = packimg_schema(maker->dataset);
	const struct schema_value *value = subject->value;
	const struct pipeline_value *named = pipeline_value(maker->pipeline->parsed, value->name);
	int number = schema_frame(schema, subject->number);
	struct packimg_sample frame;
	struct grid grid;
	int r = find_image(maker, subject->sample, &schema->values[number], &frame, error);

	r = r ?: delivered_grid(maker, &frame, &subject->image, value, &grid, error);
	if (r)
		return r;
	if (panel_resize(panel, grid.width, grid.height))
		return -ENOMEM;
	const struct levels levels = grid_levels(&grid);
	grid_draw(&grid, &levels, grid.width, grid.height, panel->rgb.data);
	panel_describe(panel, maker, "delivered: %u x %u %s", grid.width, grid.height,
		       schema_element_name(named && named->to_position >= 0
						   ? (enum schema_element)named->element
						   : value->element));
	panel_describe_levels(panel, &grid, &levels);
	return 0;
}

static int delivered_layers(struct panel_maker *maker, const struct subject *subject,
			    struct panel *panel, struct packimg_error *error)
{
	const struct panel_pipeline *pipeline = maker->pipeline;
	const struct shapes_source source = {
		.dataset = maker->dataset,
		.sample = &subject->image,
		.frame = subject->number,
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
		r = draw_masks(maker, subject, delivered_grid, panel, error);
	return r || !pipeline->moves_shapes ? r : shapes_read(&panel->shapes, &source, error);
}

/* Returns why no feed with this pipeline delivers the value; NULL if one does. */
static const char *refusal_of(const struct panel_maker *maker, const struct subject *subject)
{
	const struct panel_pipeline *pipeline = maker->pipeline;
	const struct schema *schema = packimg_schema(maker->dataset);
	int first = schema_stored(schema, SCHEMA_IN_INDEX, 0);
	bool of_first = subject->value->role == SCHEMA_IMAGE
				? (int)subject->number == first
				: schema_frame(schema, subject->number) == first;

	if (pipeline->boxes >= 0 && !of_first)
		return "random_iou_crop chooses by the boxes of the first image, so a feed cannot "
		       "deliver this";
	return subject->value->role == SCHEMA_RASTER && !pipeline->moves_masks
		       ? pipeline->mask_refusal
		       : NULL;
}

int panel_delivered(struct panel_maker *maker, const struct packimg_sample *sample, unsigned value,
		    struct panel *panel)
{
	struct packimg_error error = {.text = ""};
	struct subject subject;
	int r = panel_begin(panel, maker, sample, value, &subject, &error);
	const char *refusal = refusal_of(maker, &subject);

	if (refusal)
		return panel_omit(panel, refusal);
	if (r == -ENODATA)
		return panel_omit(panel, "missing");
	r = r ?: take_boxes(maker, sample, &error);
	if (!r)
		r = subject.value->role == SCHEMA_IMAGE
			    ? delivered_picture(maker, &subject, panel, &error)
			    : delivered_numbers(maker, &subject, panel, &error);
	if (r == -ENODATA)
		return panel_omit(panel, "missing");
	if (!r && is_frame(&subject))
		r = delivered_layers(maker, &subject, panel, &error);
	return r ? panel_fail(panel, &subject, r, &error) : 0;
}
