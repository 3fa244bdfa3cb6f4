/* Runs steps, in memory laid out by planning. */
#include "format/base/system/clock.h"
#include "trainer/device/cpu/cpu.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/*
 * Clock for profiles. With a single thread it is that thread's CPU time, which other load on the
 * machine hardly affects.
 */
static uint64_t run_clock_ns(const struct cpu_exec *exec)
{
	return clock_ns(exec->device->thread_pool.threads == 1 ? CLOCK_THREAD_CPUTIME_ID
							       : CLOCK_MONOTONIC);
}

/* detect_anomaly: -EDOM, with the device's error string set, if a tensor is not finite. */
static int run_inspect(struct cpu_exec *exec, const struct cpu_node *node, const void *data,
		       enum element element, size_t count, const char *what)
{
	if (!data || loops_finite(&exec->device->loops, data, element, count))
		return 0;
	return device_fail(&exec->device->base, -EDOM, "%s: its %s is not finite", node->node->name,
			   what);
}

/* For keep_all and detect_anomaly: sums an output's gradient before it is modified in place. */
static int run_gather(struct cpu_exec *exec, struct cpu_node *node, int index)
{
	const struct device_value *output = cpu_output(node, index);
	const struct cpu_value *y = node->outputs[index];
	enum element element = exec->device->element;
	size_t count = output ? device_shape_elements(output->shape) : 0;
	int r = 0;

	if (!output)
		return 0;
	if (y->grad_output)
		memcpy(y->gradients[0], y->grad_output, count * element_size(element));
	if (y->sum && y->gradient_count)
		memcpy(y->sum, y->gradients[0], count * element_size(element));
	for (uint32_t i = 1; y->sum && i < y->gradient_count; i++)
		loops_add(&exec->device->loops, y->sum, y->gradients[i], element, count);
	if (exec->device->base.options.detect_anomaly)
		for (uint32_t i = 0; i < y->gradient_count && r == 0; i++)
			r = run_inspect(exec, node, y->gradients[i], element, count,
					"result's gradient");
	return r;
}

static int run_fail_pass(struct cpu_exec *exec, const struct cpu_node *node, int r,
			 const char *pass)
{
	if (r == -ECOMM)
		return r; /* ranks.c has already set the error string */
	return device_fail(&exec->device->base, r, "%s: its %s pass failed", node->node->name,
			   pass);
}

static void run_report_span(const struct cpu_exec *exec, const struct cpu_node *node,
			    const char *pass, uint64_t begin_ns)
{
	device_span_end(&exec->device->base, node->node->name, node->node->kind_name, pass,
			begin_ns);
}

static int run_forward(struct cpu_exec *exec)
{
	const struct device_options *options = &exec->device->base.options;
	const char *pass = cpu_training(exec) ? "forward" : "evaluation";
	int r = 0;

	cpu_gathers_begin(exec);
	for (uint32_t i = 0; i < exec->graph->node_count && r == 0; i++) {
		struct cpu_node *node = &exec->nodes[i];

		r = cpu_gathers_reach(exec, i);
		uint64_t start = options->profile ? run_clock_ns(exec) : 0;
		uint64_t begin = device_span_begin(&exec->device->base);
		if (r == 0 && node->ops->forward)
			r = node->ops->forward(exec, node);
		if (r < 0)
			return run_fail_pass(exec, node, r, "forward");
		if (options->profile) {
			node->forward_ns += run_clock_ns(exec) - start;
			node->runs++;
		}
		run_report_span(exec, node, pass, begin);
		for (int j = 0; options->detect_anomaly && j < DEVICE_NODE_OUTPUTS && r == 0; j++)
			if (node->outputs[j])
				r = run_inspect(
					exec, node, node->outputs[j]->data,
					node->outputs[j]->element,
					device_shape_elements(node->node->outputs[j]->shape),
					"result");
	}
	return r;
}

static int run_backward_node(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_options *options = &exec->device->base.options;
	struct device_param *weight = node->node->weight;
	int r = cpu_gathers_reach(exec, node->backward_step);
	uint64_t start = options->profile ? run_clock_ns(exec) : 0;
	uint64_t begin = device_span_begin(&exec->device->base);

	for (int i = 0; i < DEVICE_NODE_OUTPUTS && r == 0; i++)
		r = run_gather(exec, node, i);
	if (r < 0)
		return r;
	if (node->ops->backward)
		r = node->ops->backward(exec, node);
	if (r < 0)
		return run_fail_pass(exec, node, r, "backward");
	if (options->profile)
		node->backward_ns += run_clock_ns(exec) - start;
	run_report_span(exec, node, "backward", begin);
	if (options->detect_anomaly && device_param_trains(weight))
		r = run_inspect(exec, node, cpu_param_gradient(weight), ELEMENT_F32,
				weight->elements, "weight's gradient");
	return r;
}

/* Recomputes what backward needs of the segment that ends with node `last`. */
static int run_recompute(struct cpu_exec *exec, uint32_t last)
{
	bool profile = exec->device->base.options.profile;
	int r = 0;

	exec->recomputing = true;
	for (uint32_t i = cpu_segment_first(exec, last); i <= last && r == 0; i++) {
		struct cpu_node *node = &exec->nodes[i];

		if (!node->recompute_step)
			continue;
		r = cpu_gathers_reach(exec, node->recompute_step);
		uint64_t start = profile ? run_clock_ns(exec) : 0;
		uint64_t begin = device_span_begin(&exec->device->base);
		if (r == 0)
			r = node->ops->forward(exec, node);
		if (r < 0)
			r = run_fail_pass(exec, node, r, "second forward");
		if (profile)
			node->backward_ns += run_clock_ns(exec) - start;
		run_report_span(exec, node, "backward", begin);
	}
	exec->recomputing = false;
	return r;
}

/* Sums gradients over ranks as they become complete. */
static int run_backward(struct cpu_exec *exec)
{
	int r = 0;

	cpu_ranks_begin_backward(exec);

	for (uint32_t i = exec->graph->node_count; i-- > 0 && r == 0;) {
		r = run_recompute(exec, i);
		if (r == 0 && exec->graph->nodes[i]->backward)
			r = run_backward_node(exec, &exec->nodes[i]);
		if (r == 0)
			r = cpu_ranks_passed(exec, i);
	}
	if (r < 0 || !exec->ranks.started)
		return r;
	uint64_t begin = device_span_begin(&exec->device->base);
	r = cpu_ranks_gradients(exec);
	device_span_end(&exec->device->base, "sums of gradients", "", "backward", begin);
	return r;
}

static int run_update(struct cpu_exec *exec, const struct device_hyper *hyper,
		      struct device_results *results)
{
	uint64_t begin = device_span_begin(&exec->device->base);
	int r = cpu_update(exec->device, exec->graph->params, hyper, results);

	device_span_end(&exec->device->base, "update", "", "update", begin);
	return r;
}

static int run_begin(struct cpu_exec *exec, struct device_results **ret_results)
{
	struct device_results *results = NULL;

	if (!exec->fed_count)
		return device_fail(&exec->device->base, -EINVAL, "no batch was fed for this step");
	int r = cpu_ranks_begin(exec);
	if (r < 0)
		return r;
	exec->fed_count = 0;
	exec->steps++;
	results = &exec->results[exec->steps % DEVICE_RESULTS_MAX];
	memset(results, 0, sizeof(*results));
	results->step = exec->steps;
	results->loss_scale = exec->params->state.loss_scale;
	*ret_results = results;
	return 0;
}

/* Options of run_step(). */
struct run_phases {
	bool backward, keeps_statistics, warms_up;
	const struct device_hyper *hyper; /* or NULL */
	enum device_slot weights;
};

static int run_step(struct cpu_exec *exec, const struct run_phases *phases, uint64_t *ret_step)
{
	const struct device_hyper *hyper = phases->hyper;
	struct device_results *results = NULL;

	exec->weights = phases->weights;
	exec->keeps_statistics = phases->keeps_statistics;
	exec->warms_up = phases->warms_up;
	exec->updates = hyper;
	int r = run_begin(exec, &results);
	if (r < 0)
		return r;
	thread_pool_enter(&exec->device->thread_pool);
	r = run_forward(exec);
	exec->params->buffers_version += cpu_training(exec); /* running statistics changed */
	if (r == 0 && phases->backward)
		r = run_backward(exec);
	if (r == 0 && hyper)
		r = run_update(exec, hyper, results);
	if (r == 0)
		r = cpu_ranks_results(exec, results);
	thread_pool_leave(&exec->device->thread_pool);
	if (r == 0)
		*ret_step = exec->steps;
	return r;
}

int cpu_step(struct device_graph *graph, const struct device_hyper *hyper, uint64_t *ret_step)
{
	struct run_phases phases = {true, graph->params->perturbed, false, hyper, DEVICE_VALUE};

	return run_step(graph->backend, &phases, ret_step);
}

int cpu_forward(struct device_graph *graph, bool moves_statistics, uint64_t *ret_step)
{
	struct run_phases phases = {false, !moves_statistics, false, NULL, DEVICE_VALUE};

	return run_step(graph->backend, &phases, ret_step);
}

int cpu_warmup(struct device_graph *graph)
{
	struct run_phases phases = {true, true, true, NULL, DEVICE_VALUE};
	uint64_t step;

	return run_step(graph->backend, &phases, &step);
}

int cpu_evaluate(struct device_graph *graph, enum device_slot weights, uint64_t *ret_step)
{
	struct run_phases phases = {false, false, false, NULL, weights};

	return run_step(graph->backend, &phases, ret_step);
}

int cpu_results(struct device_graph *graph, uint64_t step, bool wait,
		struct device_results *ret_results)
{
	const struct cpu_exec *exec = graph->backend;

	if (!step || step > exec->steps || exec->steps - step >= DEVICE_RESULTS_MAX)
		return -ERANGE;
	*ret_results = exec->results[step % DEVICE_RESULTS_MAX];
	return 0;
}

int cpu_logits(struct device_graph *graph, float *ret_logits)
{
	const struct cpu_exec *exec = graph->backend;
	const struct device_value *logits = graph->loss->x;
	const struct cpu_value *value = &exec->values[logits->index];

	exec->device->loops.kernels->convert(ret_logits, ELEMENT_F32, value->data, value->element,
					     device_shape_elements(logits->shape));
	return 0;
}

int cpu_losses(struct device_graph *graph, float *ret_losses)
{
	const struct cpu_exec *exec = graph->backend;

	memcpy(ret_losses, exec->losses, graph->loss->x->shape.n * sizeof(float));
	return 0;
}

int cpu_value_read(struct device_graph *graph, const struct device_value *value,
		   enum device_slot slot, float *ret_values)
{
	const struct cpu_exec *exec = graph->backend;
	const struct cpu_value *own = &exec->values[value->index];
	const void *data = NULL;
	enum element element = exec->device->element;

	if (slot == DEVICE_VALUE && own->kept) {
		data = own->data;
		element = own->element;
	} else if (slot == DEVICE_GRAD) {
		data = own->sum ? own->sum : own->grad_output;
	}
	if (!data)
		return -ENOENT;
	exec->device->loops.kernels->convert(ret_values, ELEMENT_F32, data, element,
					     device_shape_elements(value->shape));
	return 0;
}

int cpu_value_write(struct device_graph *graph, const struct device_value *value,
		    enum device_slot slot, const float *values)
{
	const struct cpu_exec *exec = graph->backend;
	const struct cpu_value *own = &exec->values[value->index];
	uint64_t count = device_shape_elements(value->shape);

	if (slot != DEVICE_GRAD || !own->grad_output)
		return -ENOENT;
	exec->device->loops.kernels->convert(own->grad_output, exec->device->element, values,
					     ELEMENT_F32, count);
	return 0;
}
