/*
 * Bilinear resizing with antialiasing: a triangle filter with a support proportional to the scale,
 * sampled at the positions' centres and normalised (Pillow's, used by torchvision and PyTorch for
 * antialias).
 */
#include "trainer/device/resample.h"
#include "trainer/device/backend.h"

#include <errno.h>
#include <math.h>

static struct device_shape input_shape(const struct device_graph *graph)
{
	return graph->input->y->shape;
}

size_t device_changes_bytes(const struct device_graph *graph)
{
	if (!graph->input || !graph->input->input.resamples)
		return 0;
	struct device_shape shape = input_shape(graph);
	return shape.n * sizeof(struct device_blend) +
	       ((size_t)shape.h + shape.w) * sizeof(struct device_tap);
}

struct device_changes device_changes_at(const struct device_graph *graph, void *memory)
{
	struct device_shape shape = input_shape(graph);
	struct device_changes changes = {.blends = memory};

	changes.rows = (struct device_tap *)(changes.blends + shape.n);
	changes.columns = changes.rows + shape.h;
	return changes;
}

/* Tap of one position of `to`, when resizing from `from` positions. */
static struct device_tap resize_tap(uint32_t position, uint32_t from, uint32_t to)
{
	double scale = (double)from / to, support = fmax(scale, 1), sum = 0,
	       centre = scale * (position + 0.5);
	double first = fmax(floor(centre - support + 0.5), 0),
	       last = fmin(floor(centre + support + 0.5), from), weights[DEVICE_TAPS_MAX];
	struct device_tap tap = {.first = (uint32_t)first, .count = (uint32_t)(last - first)};

	for (uint32_t i = 0; i < tap.count; i++) {
		weights[i] = fmax(0, 1 - fabs(first + i - centre + 0.5) / support);
		sum += weights[i];
	}
	for (uint32_t i = 0; i < tap.count; i++)
		tap.weights[i] = (float)(weights[i] / sum);
	return tap;
}

static void fill_axis(struct device_tap *taps, uint32_t to, uint32_t from, const uint32_t *picks)
{
	for (uint32_t i = 0; i < to; i++) {
		if (picks || from == to)
			taps[i] = (struct device_tap){picks ? picks[i] : i, 1, {1}};
		else
			taps[i] = resize_tap(i, from, to);
	}
}

struct device_shape device_batch_shape(const struct device_graph *graph,
				       const struct device_batch *batch)
{
	struct device_shape shape = input_shape(graph);

	shape.n = batch->count;
	shape.c = batch->channels;
	if (batch->height)
		shape.h = batch->height;
	if (batch->width)
		shape.w = batch->width;
	return shape;
}

void device_changes_fill(const struct device_graph *graph, const struct device_batch *batch,
			 void *ret_memory)
{
	struct device_changes changes = device_changes_at(graph, ret_memory);
	struct device_shape shape = input_shape(graph), from = device_batch_shape(graph, batch);

	for (uint32_t i = 0; i < shape.n; i++)
		changes.blends[i] = batch->blends && i < batch->count
					    ? batch->blends[i]
					    : (struct device_blend){.partner = i, .share = 1};
	fill_axis(changes.rows, shape.h, from.h, batch->rows);
	fill_axis(changes.columns, shape.w, from.w, batch->columns);
}

static int check_picks(const struct device_graph *graph, const uint32_t *picks, uint32_t count,
		       uint32_t of, const char *what)
{
	for (uint32_t i = 0; picks && i < count; i++)
		if (picks[i] >= of)
			return device_fail(graph->device, -EINVAL,
					   "the batch picks %s %u of its images, which have %u",
					   what, picks[i], of);
	return 0;
}

static int check_size(const struct device_graph *graph, const struct device_batch *batch)
{
	struct device_shape to = input_shape(graph), from = device_batch_shape(graph, batch);
	int r = check_picks(graph, batch->rows, to.h, from.h, "row");

	if (r == 0)
		r = check_picks(graph, batch->columns, to.w, from.w, "column");
	if (r < 0)
		return r;
	if ((!batch->rows && from.h > (uint64_t)DEVICE_SHRINK_MAX * to.h) ||
	    (!batch->columns && from.w > (uint64_t)DEVICE_SHRINK_MAX * to.w))
		return device_fail(graph->device, -EINVAL,
				   "the batch's images are %u x %u, more than %d times the "
				   "graph's input of %u x %u",
				   from.h, from.w, DEVICE_SHRINK_MAX, to.h, to.w);
	return 0;
}

static bool blend_fits(const struct device_blend *blend, uint32_t count, struct device_shape shape)
{
	return blend->partner < count && blend->share >= 0 && blend->share <= 1 &&
	       blend->top <= blend->bottom && blend->bottom <= shape.h &&
	       blend->left <= blend->right && blend->right <= shape.w;
}

int device_changes_check(const struct device_graph *graph, const struct device_batch *batch)
{
	struct device_shape to = input_shape(graph), from = device_batch_shape(graph, batch);
	bool changes =
		batch->rows || batch->columns || batch->blends || from.h != to.h || from.w != to.w;

	if (changes && !graph->input->input.resamples)
		return device_fail(graph->device, -EINVAL,
				   "the batch is of %u x %u and to be resized, thinned or blended; "
				   "the graph's input of %u x %u takes batches as they are",
				   from.h, from.w, to.h, to.w);
	int r = changes ? check_size(graph, batch) : 0;
	for (uint32_t i = 0; r == 0 && batch->blends && i < batch->count; i++) {
		const struct device_blend *blend = &batch->blends[i];

		if (!blend_fits(blend, batch->count, to))
			r = device_fail(graph->device, -EINVAL,
					"sample %u of the batch cannot be blended: partner %u of "
					"%u, share %g, box %u..%u x %u..%u of %u x %u",
					i, blend->partner, batch->count, (double)blend->share,
					blend->top, blend->bottom, blend->left, blend->right, to.h,
					to.w);
	}
	return r;
}
