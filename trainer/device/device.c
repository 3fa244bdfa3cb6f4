/* Opens devices; also the functions of steps.h and graph.h that only validate and forward. */
#include "format/base/system/clock.h"
#include "trainer/device/backend.h"
#include "trainer/device/resample.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

uint64_t device_shape_elements(struct device_shape shape)
{
	return (uint64_t)shape.n * shape.h * shape.w * shape.c;
}

unsigned device_world(const struct device *device)
{
	return device->options.comm ? device->options.comm->world : 1;
}

struct backend {
	const char *name;
	int (*open)(const struct device_options *options, struct device **ret_device, char *error);
};

/* Best first. The emulated GPU is only for tests, which select it by name. */
static const struct backend backends[] = {
#ifdef HAVE_CUDA
	{"cuda", device_cuda_open},
#endif
	{"cpu", device_cpu_open},
#ifdef HAVE_CUDA_EMULATED
	{"cuda-emulated", device_cuda_open},
	{"cuda",
	 device_cuda_open}, /* for programs linked with the emulation, which only know GPUs */
#endif
};

#define BACKENDS (sizeof(backends) / sizeof(*backends))
/*
 * Size of one backend's reason, so that the names and reasons of all backends fit in an error
 * string.
 */
#define REASON_MAX ((int)(DEVICE_ERROR_MAX / BACKENDS) - 32)

static int fail_unknown(const char *name, char *error)
{
	int length = snprintf(error, DEVICE_ERROR_MAX,
			      "device '%s' is not built in; this build has ", name);

	for (size_t i = 0; i < BACKENDS; i++)
		length += snprintf(error + length, (size_t)(DEVICE_ERROR_MAX - length), "%s%s",
				   i ? ", " : "", backends[i].name);
	return -ENODEV;
}

static int open_one(const char *name, const struct device_options *options,
		    struct device **ret_device, char *error)
{
	size_t i = 0;

	while (i < BACKENDS && strcmp(name, backends[i].name) != 0)
		i++;
	if (i == BACKENDS)
		return fail_unknown(name, error);
	*error = 0;
	int r = backends[i].open(options, ret_device, error);
	/* an open device uses its own error buffer */
	if (r == 0)
		*error = 0;
	return r;
}

/*
 * error receives the reasons why better backends were skipped or, on failure, the last backend's
 * error string.
 */
static int open_best(const struct device_options *options, struct device **ret_device, char *error)
{
	char own[DEVICE_ERROR_MAX] = "";
	int r = -ENODEV, length = 0;

	*error = 0;
	for (size_t i = 0; i < BACKENDS; i++) {
		r = backends[i].open(options, ret_device, own);
		if (r == 0)
			return 0;
		length +=
			snprintf(error + length, (size_t)(DEVICE_ERROR_MAX - length), "%s%s: %.*s",
				 length ? "; " : "", backends[i].name, REASON_MAX, own);
		if (length >= DEVICE_ERROR_MAX)
			length = DEVICE_ERROR_MAX - 1;
	}
	return r;
}

int device_open(const char *backend, const struct device_options *options,
		struct device **ret_device, char *error)
{
	static const struct device_options defaults = {0};
	char scratch[DEVICE_ERROR_MAX];

	if (!options)
		options = &defaults;
	if (!error)
		error = scratch;
	if (options->precision < DEVICE_AUTO || options->precision > DEVICE_FP16)
		return sentence_fail(error, DEVICE_ERROR_MAX, -EINVAL,
				     "precision %d is not one of auto, fp32, bf16, fp16",
				     (int)options->precision);
	return backend ? open_one(backend, options, ret_device, error)
		       : open_best(options, ret_device, error);
}

void device_close(struct device *device)
{
	if (device)
		device->ops->close(device);
}

const struct device_info *device_info(const struct device *device)
{
	return &device->info;
}

int device_synchronize(struct device *device)
{
	return device->ops->synchronize(device);
}

int device_register_host(struct device *device, const void *memory, size_t bytes, bool writable)
{
	if (!memory || !bytes)
		return device_fail(device, -EINVAL, "no memory to register");
	return device->ops->register_host
		       ? device->ops->register_host(device, memory, bytes, writable)
		       : 0;
}

void device_unregister_host(struct device *device, const void *memory)
{
	if (memory && device->ops->unregister_host)
		device->ops->unregister_host(device, memory);
}

const char *device_error(const struct device *device)
{
	return device->error;
}

void device_graph_info(const struct device_graph *graph, struct device_graph_info *ret_info)
{
	memset(ret_info, 0, sizeof(*ret_info));
	ret_info->layers = graph->node_count;
	ret_info->fallback_log = "";
	ret_info->warning = "";
	if (graph->planned)
		graph->device->ops->graph_info(graph, ret_info);
}

int device_graph_layer(const struct device_graph *graph, uint32_t index,
		       struct device_layer_info *ret_info)
{
	if (index >= graph->node_count || !graph->planned)
		return -ENOENT;
	memset(ret_info, 0, sizeof(*ret_info));
	ret_info->name = graph->nodes[index]->name;
	ret_info->kind = graph->nodes[index]->kind_name;
	ret_info->shape = graph->nodes[index]->y->shape;
	graph->device->ops->graph_layer(graph, index, ret_info);
	return 0;
}

void device_watch_steps(struct device *device, device_watch *watch, void *of)
{
	device->watch = watch;
	device->watch_of = of;
}

uint64_t device_span_begin(const struct device *device)
{
	return device->watch ? clock_ns(CLOCK_MONOTONIC) : 0;
}

void device_span_end(const struct device *device, const char *name, const char *kind,
		     const char *pass, uint64_t begin_ns)
{
	if (!begin_ns)
		return;
	struct device_span span = {name, kind, pass, begin_ns, clock_ns(CLOCK_MONOTONIC)};
	device->watch(device->watch_of, &span);
}

size_t device_element_size(enum device_element element)
{
	return element == DEVICE_ELEMENT_U8 ? 1 : element == DEVICE_ELEMENT_F32 ? 4 : 2;
}

/* Checks the weights of first labels. */
static int check_shares(const struct device_graph *graph, const struct device_batch *batch)
{
	if (!batch->labels2 != !batch->shares)
		return device_fail(graph->device, -EINVAL,
				   "the batch has second labels without shares, or these without "
				   "those");
	for (uint32_t i = 0; batch->shares && i < batch->count; i++)
		if (!(batch->shares[i] >= 0 && batch->shares[i] <= 1))
			return device_fail(graph->device, -EINVAL,
					   "sample %u of the batch has %g of its label", i,
					   (double)batch->shares[i]);
	return 0;
}

static int check_dense(const struct device_graph *graph, const struct device_batch *batch)
{
	uint32_t classes = graph->loss->x->shape.c;
	size_t count = (size_t)batch->count * classes;
	float least = device_loss_is_regression(&graph->loss->loss) ? -INFINITY : 0;

	if (!batch->targets)
		return device_fail(graph->device, -EINVAL,
				   "the batch has no targets, the graph's loss takes dense ones");
	for (size_t i = 0; i < count; i++) {
		float target = batch->targets[i];
		bool none = isnan(batch->targets[i - i % classes]);

		if (none ? !isnan(target) : !(target >= least) || !isfinite(target))
			return device_fail(graph->device, -EINVAL,
					   "sample %zu of the batch has the target %g for class "
					   "%zu",
					   i / classes, (double)target, i % classes);
	}
	return 0;
}

static int check_teacher(const struct device_graph *graph, const struct device_batch *batch)
{
	bool wanted = graph->loss && graph->loss->loss.teacher_weight > 0;
	uint32_t classes = graph->loss ? graph->loss->x->shape.c : 0;
	size_t count = (size_t)batch->count * classes;

	if (wanted == !batch->teacher)
		return device_fail(graph->device, -EINVAL,
				   wanted ? "the batch has no logits of a teacher, which the "
					    "graph's loss takes"
					  : "the batch has logits of a teacher, the graph's loss "
					    "takes none");
	if (batch->teacher_kept && !graph->device->ops->logits_keep)
		return device_fail(graph->device, -EINVAL,
				   "the batch has logits of a teacher on the device, which keeps "
				   "none");
	for (size_t i = 0; wanted && !batch->teacher_kept && i < count; i++)
		if (!isfinite(batch->teacher[i]))
			return device_fail(graph->device, -EINVAL,
					   "sample %zu of the batch has the teacher's logit %g "
					   "for class %zu",
					   i / classes, (double)batch->teacher[i], i % classes);
	return 0;
}

static int check_targets(const struct device_graph *graph, const struct device_batch *batch)
{
	const struct device_node *loss = graph->loss;
	int r = check_teacher(graph, batch);

	if (r < 0)
		return r;
	if ((batch->labels2 || batch->shares) && (!loss || loss->loss.targets != DEVICE_TWO_LABELS))
		return device_fail(graph->device, -EINVAL,
				   "the batch has second labels, the graph's loss takes none");
	if (batch->targets && (!loss || loss->loss.targets != DEVICE_DENSE))
		return device_fail(graph->device, -EINVAL,
				   "the batch has dense targets, the graph's loss takes none");
	if (loss && loss->loss.targets == DEVICE_DENSE)
		return check_dense(graph, batch);
	return check_shares(graph, batch);
}

static int check_deferred(struct device *device, const struct device_batch *batch)
{
	if (!batch->deferred)
		return 0;
	if (batch->element != DEVICE_ELEMENT_U8 || batch->channels < 3 || batch->channels > 4)
		return device_fail(device, -EINVAL,
				   "steps were deferred of a batch that is not of bytes of 3 or 4 "
				   "channels");
	if (batch->delivered_height - 1 >= DEFERRED_SIDE_MAX ||
	    batch->delivered_width - 1 >= DEFERRED_SIDE_MAX)
		return device_fail(device, -EINVAL,
				   "the batch's images are %u x %u, before what was "
				   "deferred",
				   batch->delivered_height, batch->delivered_width);
	for (uint32_t i = 0; i < batch->count; i++)
		if (batch->deferred[i].height != batch->height ||
		    batch->deferred[i].width != batch->width)
			return device_fail(device, -EINVAL,
					   "sample %u becomes %u x %u, others of its batch %u x %u",
					   i, batch->deferred[i].height, batch->deferred[i].width,
					   batch->height, batch->width);
	return 0;
}

static int check_batch(const struct device_graph *graph, const struct device_batch *batch)
{
	struct device *device = graph->device;

	if (!graph->planned || !graph->input)
		return device_fail(device, -EINVAL, "a batch was fed to a graph that %s",
				   graph->planned ? "has no input" : "is not planned");
	struct device_shape shape = graph->input->y->shape;
	if (!batch->images)
		return device_fail(device, -EINVAL, "the batch has no images");
	if (batch->element < DEVICE_ELEMENT_U8 || batch->element > DEVICE_ELEMENT_F32)
		return device_fail(device, -EINVAL, "batch element %d is not known",
				   (int)batch->element);
	if (batch->count < 1 || batch->count > shape.n ||
	    (graph->options.mode == DEVICE_TRAIN && batch->count != shape.n))
		return device_fail(device, -EINVAL,
				   "the batch has %u sample%s, the graph wants %s%u", batch->count,
				   batch->count == 1 ? "" : "s",
				   graph->options.mode == DEVICE_TRAIN ? "" : "at most ", shape.n);
	if (batch->channels < shape.c)
		return device_fail(device, -EINVAL, "the batch has %u channels, the graph wants %u",
				   batch->channels, shape.c);
	if (batch->element == DEVICE_ELEMENT_U8 && shape.c > 4)
		return device_fail(
			device, -EINVAL,
			"u8 batches are normalised for up to 4 channels, the graph has %u",
			shape.c);
	int r = check_deferred(device, batch);
	if (r == 0)
		r = device_changes_check(graph, batch);
	return r < 0 ? r : check_targets(graph, batch);
}

size_t device_batch_image(const struct device_batch *batch)
{
	size_t pixels = batch->deferred ? (size_t)batch->delivered_height * batch->delivered_width
					: (size_t)batch->height * batch->width;

	return pixels * batch->channels * device_element_size(batch->element);
}

int device_upload(struct device_graph *graph, const struct device_batch *batch,
		  uint64_t *ret_ticket)
{
	int r = check_batch(graph, batch);

	return r < 0 ? r : graph->device->ops->upload(graph, batch, ret_ticket);
}

int device_upload_done(struct device_graph *graph, uint64_t ticket, bool wait)
{
	return graph->device->ops->upload_done(graph, ticket, wait);
}

int device_step(struct device_graph *graph, const struct device_hyper *hyper, uint64_t *ret_step)
{
	if (!graph->planned || graph->options.mode != DEVICE_TRAIN)
		return device_fail(graph->device, -EINVAL, "a step needs a planned training graph");
	if (!graph->params->has_optimizer)
		return device_fail(graph->device, -EINVAL,
				   "a step needs a store with an optimizer");
	if (hyper && hyper->perturb > 0) {
		if (!graph->params->optimizer.perturbs || graph->params->perturbed)
			return device_fail(graph->device, -EINVAL,
					   "the parameters %s, so they cannot be perturbed",
					   graph->params->perturbed
						   ? "are perturbed already"
						   : "have no slot to be saved to");
	}
	int r = graph->device->ops->step(graph, hyper, ret_step);
	if (r == 0 && hyper)
		graph->params->perturbed = hyper->perturb > 0;
	return r;
}

int device_forward(struct device_graph *graph, bool moves_statistics, uint64_t *ret_step)
{
	if (!graph->planned || graph->options.mode != DEVICE_TRAIN)
		return device_fail(graph->device, -EINVAL,
				   "a forward pass alone needs a planned training graph");
	return graph->device->ops->forward(graph, moves_statistics, ret_step);
}

int device_warmup(struct device_graph *graph)
{
	if (!graph->planned || graph->options.mode != DEVICE_TRAIN || !graph->params->has_optimizer)
		return device_fail(graph->device, -EINVAL,
				   "a warm-up needs a planned training graph and an optimizer");
	int r = graph->device->ops->warmup(graph);
	device_params_drop_gradients(graph->params);
	return r;
}

int device_evaluate(struct device_graph *graph, enum device_slot weights, uint64_t *ret_step)
{
	if (!graph->planned || graph->options.mode != DEVICE_EVAL)
		return device_fail(graph->device, -EINVAL,
				   "evaluation needs a planned evaluation graph");
	if (weights != DEVICE_VALUE && weights != DEVICE_EMA && weights != DEVICE_SWA)
		return device_fail(graph->device, -EINVAL,
				   "evaluation takes the values, the EMA or the SWA");
	if (!device_params_have(graph->params, weights))
		return device_fail(graph->device, -EINVAL, "the parameters have no %s",
				   weights == DEVICE_EMA ? "EMA" : "SWA");
	if (weights != DEVICE_VALUE && device_params_are_sharded(graph->params))
		return device_fail(graph->device, -EINVAL,
				   "an average of a sharded store is evaluated after "
				   "device_params_exchange()");
	return graph->device->ops->evaluate(graph, weights, ret_step);
}

int device_results(struct device_graph *graph, uint64_t step, bool wait,
		   struct device_results *ret_results)
{
	return graph->planned ? graph->device->ops->results(graph, step, wait, ret_results)
			      : -ERANGE;
}

int device_logits(struct device_graph *graph, float *ret_logits)
{
	return graph->planned && graph->loss ? graph->device->ops->logits(graph, ret_logits)
					     : -EINVAL;
}

int device_memory_new(struct device *device, size_t count, float **ret_memory)
{
	return device->ops->memory_new ? device->ops->memory_new(device, count, ret_memory)
				       : -ENOTSUP;
}

void device_memory_free(struct device *device, float *memory)
{
	if (memory)
		device->ops->memory_free(device, memory);
}

int device_memory_read(struct device *device, const float *memory, size_t count, float *ret_values)
{
	return device->ops->memory_read(device, memory, count, ret_values);
}

int device_logits_keep(struct device_graph *graph, float *memory)
{
	return graph->planned && graph->loss && graph->device->ops->logits_keep
		       ? graph->device->ops->logits_keep(graph, memory)
		       : -EINVAL;
}

int device_losses(struct device_graph *graph, float *ret_losses)
{
	return graph->planned && graph->loss ? graph->device->ops->losses(graph, ret_losses)
					     : -EINVAL;
}

int device_value_read(struct device_graph *graph, const struct device_value *value,
		      enum device_slot slot, float *ret_values)
{
	if (!graph->planned || !value || value->graph != graph)
		return -EINVAL;
	return graph->device->ops->value_read(graph, value, slot, ret_values);
}

int device_value_write(struct device_graph *graph, const struct device_value *value,
		       enum device_slot slot, const float *values)
{
	if (!graph->planned || !value || value->graph != graph)
		return -EINVAL;
	return graph->device->ops->value_write(graph, value, slot, values);
}
