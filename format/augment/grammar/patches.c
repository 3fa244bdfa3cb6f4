#include "format/augment/grammar/patches.h"

#include <errno.h>

static uint64_t divide_up(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

static uint64_t grid_tokens(struct pipeline_grid grid)
{
	return (uint64_t)grid.rows * grid.columns;
}

/* An image, and the grids that it may get. */
struct patch_search {
	uint64_t width, height; /* pixels */
	uint64_t side_max;      /* patches */
	uint64_t tokens_max;
};

static bool grid_fits(const struct patch_search *search, struct pipeline_grid grid)
{
	return grid.rows <= search->side_max && grid.columns <= search->side_max &&
	       grid_tokens(grid) <= search->tokens_max;
}

/* Returns the grid at the largest scale that makes so many rows, or columns. */
static struct pipeline_grid grid_at(const struct patch_search *search, bool columns, uint64_t count)
{
	uint64_t along = columns ? search->width : search->height;
	uint64_t across = divide_up((columns ? search->height : search->width) * count, along);
	uint32_t other = across > UINT32_MAX ? UINT32_MAX : (uint32_t)across;

	return columns ? (struct pipeline_grid){other, (uint32_t)count}
		       : (struct pipeline_grid){(uint32_t)count, other};
}

/* The same of all scales whose grids fit; of one patch if none does. */
static struct pipeline_grid grid_largest(const struct patch_search *search)
{
	struct pipeline_grid best = {1, 1};

	for (int columns = 0; columns < 2; columns++) {
		uint64_t low = 0, above = search->side_max + 1;

		while (above - low > 1) {
			uint64_t middle = low + (above - low) / 2;
			struct pipeline_grid grid = grid_at(search, columns, middle);

			if (!grid_fits(search, grid)) {
				above = middle;
				continue;
			}
			low = middle;
			best = grid_tokens(grid) > grid_tokens(best) ? grid : best;
		}
	}
	return best;
}

/* Returns the grid of the next larger scale. */
static struct pipeline_grid grid_next(const struct patch_search *search, struct pipeline_grid grid)
{
	uint64_t rows_end = grid.rows * search->width, columns_end = grid.columns * search->height;

	return (struct pipeline_grid){grid.rows + (rows_end <= columns_end),
				      grid.columns + (columns_end <= rows_end)};
}

struct pipeline_grid patches_grid(const struct transform_patches *patches, uint32_t width,
				  uint32_t height)
{
	struct patch_search search = {width, height, PIPELINE_SIDE_MAX / patches->size,
				      patches->tokens_max};
	struct pipeline_grid grid = {(uint32_t)divide_up(height, patches->size),
				     (uint32_t)divide_up(width, patches->size)};

	if (!grid_fits(&search, grid))
		grid = grid_largest(&search);
	if (grid_tokens(grid) >= patches->tokens_min)
		return grid;
	search.tokens_max = patches->tokens_min - 1;
	struct pipeline_grid below = grid_largest(&search);
	struct pipeline_grid next = grid_next(&search, below);

	search.tokens_max = patches->tokens_max;
	return grid_fits(&search, next) ? next : below;
}

const struct transform *pipeline_patch_step(const struct pipeline *pipeline)
{
	for (unsigned i = 0; i < pipeline->transform_count; i++)
		if (pipeline->transforms[i].kind == TRANSFORM_PATCH_RESIZE)
			return &pipeline->transforms[i];
	return NULL;
}

uint32_t pipeline_patches_max(const struct pipeline *pipeline)
{
	const struct transform *step = pipeline_patch_step(pipeline);

	return step ? step->patches.tokens_max : 0;
}

struct pipeline_grid pipeline_patch_grid(const struct pipeline *pipeline, uint32_t width,
					 uint32_t height)
{
	const struct transform *step = pipeline_patch_step(pipeline);

	if (!step || width == 0 || height == 0)
		return (struct pipeline_grid){0, 0};
	return patches_grid(&step->patches, width, height);
}

struct pipeline_size patches_size(const struct pipeline *pipeline, uint32_t width, uint32_t height)
{
	const struct transform *step = pipeline_patch_step(pipeline);
	struct pipeline_grid grid = pipeline_patch_grid(pipeline, width, height);

	if (!step)
		return (struct pipeline_size){0, 0};
	return (struct pipeline_size){grid.columns * step->patches.size,
				      grid.rows * step->patches.size};
}

int patches_check(const struct pipeline *pipeline, struct pipeline_error *error)
{
	const struct transform *step = pipeline_patch_step(pipeline);

	if (!step)
		return 0;
	for (unsigned i = 0; i < pipeline->transform_count; i++) {
		const struct transform *other = &pipeline->transforms[i];

		if (other != step && other->kind < TRANSFORM_GEOMETRY_COUNT &&
		    other->kind != TRANSFORM_HFLIP && other->kind != TRANSFORM_VFLIP)
			return pipeline_fail(error, -EINVAL, other->position,
					     "%s changes the size of an image, and patch_resize "
					     "divides each by its stored size, from which its "
					     "number of patches is known: leave it out",
					     transform_name(other->kind));
	}
	if (pipeline->view_name[0])
		return pipeline_fail(error, -EINVAL, step->position,
				     "patch_resize is for pipelines that make one image of each "
				     "sample: leave it or the views out");
	if (pipeline_mixes(pipeline))
		return pipeline_fail(error, -EINVAL, pipeline->batch.position,
				     "mixup and cutmix blend images of one size, and patch_resize "
				     "gives each its own: leave one of them out");
	if (pipeline->paste.position >= 0)
		return pipeline_fail(error, -EINVAL, pipeline->paste.position,
				     "copy_paste pastes pixels of whole images, and patch_resize "
				     "divides them into patches: leave one of them out");
	if (pipeline->layout != PIPELINE_NHWC || pipeline->channels != 3)
		return pipeline_fail(error, -EINVAL, step->position,
				     "patches have the order row, column, channel, and three "
				     "channels: leave layout and channels out, and permute them "
				     "on the device");
	return 0;
}
