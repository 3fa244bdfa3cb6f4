#include "format/augment/apply/iou_crop.h"

bool iou_window_shows_centre(const struct iou_window *window, const float corners[4])
{
	float x = 0.5f * (corners[0] + corners[2]), y = 0.5f * (corners[1] + corners[3]);

	return (float)window->x < x && x < (float)(window->x + window->width) &&
	       (float)window->y < y && y < (float)(window->y + window->height);
}

/* Returns the length that two ranges have in common. */
static float common(float low, float high, uint32_t from, uint32_t length)
{
	float begin = (float)from, end = (float)(from + length);
	float size = (high < end ? high : end) - (low > begin ? low : begin);

	return size > 0 ? size : 0;
}

/* torchvision.ops.box_iou() of a box and the window. */
static float overlap_of(const struct iou_window *window, const float corners[4])
{
	float area = (corners[2] - corners[0]) * (corners[3] - corners[1]);
	float area_of_window = (float)window->width * (float)window->height;
	float both = common(corners[0], corners[2], window->x, window->width) *
		     common(corners[1], corners[3], window->y, window->height);

	return both / (area + area_of_window - both);
}

static bool window_suits(const struct iou_window *window, const float *corners, size_t count,
			 float least)
{
	for (size_t i = 0; i < count; i++, corners += 4)
		if (iou_window_shows_centre(window, corners) &&
		    overlap_of(window, corners) >= least)
			return true;
	return false;
}

/* Returns a fraction of a number of pixels, rounded down. */
static uint32_t part_of(uint32_t pixels, float fraction)
{
	float part = (float)pixels * fraction;

	/* Above 2^24, rounding can exceed the pixels. */
	return part < (float)pixels ? (uint32_t)part : pixels;
}

/* Returns false if the window is none, or its shape is not allowed. */
static bool window_draw(const struct transform *transform, uint32_t width, uint32_t height,
			struct random_stream *random, struct iou_window *window)
{
	float least = (float)transform->scale[0];
	float span = (float)(transform->scale[1] - transform->scale[0]);
	float across = least + span * random_float(random);
	float down = least + span * random_float(random);

	*window = (struct iou_window){.width = part_of(width, across),
				      .height = part_of(height, down)};
	if (window->width == 0 || window->height == 0)
		return false;
	double ratio = (double)window->width / window->height;

	if (!(transform->ratio[0] <= ratio && ratio <= transform->ratio[1]))
		return false;
	window->x = part_of(width - window->width, random_float(random));
	window->y = part_of(height - window->height, random_float(random));
	return true;
}

bool iou_crop_draw(const struct transform *transform, uint32_t width, uint32_t height,
		   const float *corners, size_t count, struct random_stream *random,
		   struct iou_window *ret_window)
{
	const struct transform_list *options = &transform->overlaps;
	size_t tests = 0;

	for (int round = 0; count > 0 && round < IOU_CROP_ROUNDS_MAX; round++) {
		double option = options->numbers[random_below(random, options->count)];

		if (option >= 1)
			return false;
		for (unsigned i = 0; i < transform->trials; i++) {
			struct iou_window window;

			if (!window_draw(transform, width, height, random, &window))
				continue;
			tests += count;
			if (tests > IOU_CROP_TESTS_MAX)
				return false;
			if (window_suits(&window, corners, count, (float)option)) {
				*ret_window = window;
				return true;
			}
		}
	}
	return false;
}
