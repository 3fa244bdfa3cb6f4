/* The geometry of a feed's ring: batcher_geometry(). */
#include "loaderd/batch/batch.h"
#include "loaderd/order/sampler.h"

/* Returns the bytes of a view's finished images in a batch, at most; UINT64_MAX beyond 2^64. */
static uint64_t images_room(const struct order *order, const struct pipeline *pipeline,
			    uint64_t epoch)
{
	const struct buckets *buckets = order->sampler ? sampler_buckets(order->sampler) : NULL;
	uint64_t most = 0, bytes;
	if (!buckets || !pipeline_takes_buckets(pipeline))
		return __builtin_mul_overflow((uint64_t)pipeline_sample_size_max(pipeline),
					      (uint64_t)order->batch_size, &bytes)
			       ? UINT64_MAX
			       : bytes;
	for (uint32_t b = 0; b < buckets->count; b++) {
		const struct bucket_size *size = &buckets->sizes[b];
		uint32_t count = order_bucket_batch(order, size);
		struct pipeline_shape shape;
		pipeline_shape_in(pipeline, epoch,
				  (struct pipeline_size){size->width, size->height}, &shape);
		/* delivery_explain_size() tries other batch sizes. */
		count = count < order->batch_size ? count : order->batch_size;
		bytes = (uint64_t)shape.sample_size * count;
		most = bytes > most ? bytes : most;
	}
	return most;
}

/* Returns how many patches a batch has room for. */
static uint64_t patches_room(const struct batcher_options *options, const struct pipeline *pipeline)
{
	const struct sampler *sampler = options->order.sampler;
	const struct packs *packs = sampler ? sampler_packs(sampler) : NULL;
	uint64_t most = (uint64_t)pipeline_patches_max(pipeline) * options->order.batch_size;
	return packs && packs->tokens_max < most ? packs->tokens_max : most;
}

int batcher_geometry(const struct batcher_options *options, struct ring_geometry *ret_geometry)
{
	struct value_images images[PIPELINE_VIEWS_MAX];
	for (uint32_t i = 0; i < options->values.view_count; i++) {
		const struct pipeline *pipeline = options->values.views[i].made.pipeline;
		struct pipeline_shape shape;
		pipeline_shape(pipeline, options->epoch, &shape);
		images[i].element = (uint8_t)shape.element;
		images[i].bytes = images_room(&options->order, pipeline, options->epoch);
		images[i].patch = 0;
		if (pipeline_patches_max(pipeline) > 0) {
			images[i].patch = (uint32_t)shape.sample_size;
			images[i].patches = patches_room(options, pipeline);
		}
		images[i].pixels =
			images[i].bytes / (shape.channels * ring_element_size(shape.element));
	}
	return values_geometry(&options->values, options->slots, options->order.batch_size, images,
			       ret_geometry);
}
