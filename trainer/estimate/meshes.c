#include "trainer/estimate/meshes.h"

#include "trainer/algorithms/mix.h"
#include "trainer/algorithms/optim.h"
#include "trainer/device/cuda/ranks/collective.h"
#include "trainer/estimate/mesh_schedule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct mesh {
	uint32_t data, tensor, micro_batches;
	enum mesh_shard shard;
	double memory; /* bytes of a rank */
	bool fits;
	struct mesh_step step;
};

struct meshes {
	struct estimate *estimate;
	uint64_t batch, val_batch; /* of all ranks */
	uint64_t accumulate;       /* of the recipe; 1 for auto */
	bool shards;               /* data ranks can divide the store */
	struct mesh *items;        /* [count] */
	size_t count, capacity;
};

/* ---- one mesh ---- */

/* The graphs of one rank. */
struct mesh_graphs {
	struct device_graph *train, *eval; /* eval: NULL if the recipe does not evaluate */
	struct buckets buckets;
};

static void mesh_graphs_deinit(struct mesh_graphs *graphs)
{
	device_graph_free(graphs->train);
	device_graph_free(graphs->eval);
}

static uint32_t local_ranks(const struct estimate *estimate, uint32_t ranks, uint32_t apart)
{
	uint32_t machine = estimate->device.links[0].link.ranks / apart;
	return ranks <= machine ? ranks : machine ? machine : 1;
}

/* The ring of `ranks` ranks that are `apart` from each other. */
static struct mesh_ring mesh_ring(const struct estimate *estimate, uint32_t ranks, uint32_t apart)
{
	return (struct mesh_ring){
		.ranks = ranks,
		.local = local_ranks(estimate, ranks, apart),
		.machine = &estimate->device.links[0].link,
		.network = estimate->device.link_count > 1 ? &estimate->device.links[1].link : NULL,
	};
}

static const struct cuda_program *program_or_null(const struct device_graph *graph)
{
	return graph ? planner_program(graph) : NULL;
}

/* Sets memory, for a mesh whose data, tensor and shard are set. */
static void measure_memory(const struct meshes *meshes, const struct mesh_graphs *graphs,
			   const struct mesh_plan *plan, struct mesh *mesh)
{
	const struct estimate *estimate = meshes->estimate;
	double limit = estimate->recipe->train.memory_limit * (1 << 30);
	struct estimate_memory memory =
		estimate_memory(estimate, plan->program, program_or_null(graphs->eval));
	mesh->memory = memory.total;
	if (mesh->shard != MESH_SHARD_NONE)
		mesh->memory += mesh_store_bytes(&plan->store, mesh->shard, mesh->data) -
				(double)(memory.store.slot_bytes + memory.store.copy_bytes);
	mesh->fits = mesh->memory <= (double)estimate->device.memory_bytes &&
		     (limit <= 0 || (double)plan->program->arena.size <= limit);
}

static int measure(const struct meshes *meshes, const struct mesh_graphs *graphs, struct mesh *mesh)
{
	const struct estimate *estimate = meshes->estimate;
	const struct cuda_program *program = planner_program(graphs->train);
	struct step_time time = estimate_step_time(estimate, program);
	struct mesh_plan plan = {
		.device = &estimate->device.roofline,
		.program = program,
		.model = estimate->model,
		.shard = mesh->shard,
		.data = mesh_ring(estimate, mesh->data, mesh->tensor),
		.tensor = mesh_ring(estimate, mesh->tensor, 1),
		.micro_batches = mesh->micro_batches,
		.passes = optim_passes(estimate->recipe),
		.update_seconds = time.update,
		.other_seconds = time.teacher,
	};
	mesh_plan_store(&plan, &graphs->buckets);
	measure_memory(meshes, graphs, &plan, mesh);
	return mesh_schedule(&plan, &graphs->buckets, &mesh->step);
}

/* ---- all meshes ---- */

static int add(struct meshes *meshes, const struct mesh *mesh)
{
	if (meshes->count == meshes->capacity) {
		size_t capacity = meshes->capacity ? 2 * meshes->capacity : 16;
		struct mesh *items = realloc(meshes->items, capacity * sizeof(*items));
		if (!items)
			return -ENOMEM;
		meshes->items = items;
		meshes->capacity = capacity;
	}
	meshes->items[meshes->count++] = *mesh;
	return 0;
}

/* Plans the graphs of one of `data` ranks. */
static int plan_graphs(struct meshes *meshes, uint32_t data, uint64_t micro_batches,
		       struct mesh_graphs *graphs, char *error)
{
	struct recipe *recipe = &meshes->estimate->recipe_copy;
	recipe->data.batch_size = meshes->batch / data;
	recipe->data.val_batch_size = (meshes->val_batch + data - 1) / data;
	recipe->train.accumulate = micro_batches;
	int r = estimate_make_graphs(meshes->estimate, &graphs->train, &graphs->eval, error);
	return r < 0 ? r : buckets_plan(&graphs->buckets, graphs->train, COLLECTIVE_NCCL_ELEMENTS);
}

/* Sets the recipe to the whole batch of a mesh with so many tensor ranks. */
static void set_recipe(struct meshes *meshes, uint32_t tensor, enum recipe_shard shard)
{
	struct recipe *recipe = &meshes->estimate->recipe_copy;
	recipe->data.batch_size = meshes->batch;
	recipe->data.val_batch_size = meshes->val_batch;
	recipe->train.accumulate = meshes->accumulate;
	recipe->train.tensor = tensor;
	recipe->train.shard = shard;
}

/*
 * Sets whether data ranks can divide the store, which the recipe rules out for every train.shard
 * alike; if not, prints why.
 */
static void check_shards(struct meshes *meshes, FILE *file)
{
	char text[RECIPE_ERROR_MAX];
	set_recipe(meshes, 1, RECIPE_SHARD_OPTIMIZER);
	meshes->shards = recipe_check(meshes->estimate->recipe, false, text) == 0;
	if (!meshes->shards)
		fprintf(file, "not with train.shard: %s\n", text);
}

/*
 * Adds the meshes of `data` ranks: with each train.shard in as many micro-batches as the recipe
 * says, or with train.accumulate = auto in as few as fit.
 */
static int add_sharded(struct meshes *meshes, const struct mesh *like, char *error)
{
	struct estimate *estimate = meshes->estimate;
	struct mesh mesh = *like;
	uint32_t shards = mesh.data > 1 && meshes->shards ? MESH_SHARDS : 1, done = 0;
	uint32_t share = (uint32_t)(meshes->batch / mesh.data);
	for (uint32_t parts = (uint32_t)meshes->accumulate; done < (1u << shards) - 1;) {
		struct mesh_graphs graphs = {0};
		uint32_t next = estimate->auto_accum
					? mix_parts_after(&estimate->recipe->train, parts, share)
					: 0;
		int r = plan_graphs(meshes, mesh.data, parts, &graphs, error);
		for (uint32_t shard = 0; shard < shards && r == 0; shard++) {
			if (done & 1u << shard)
				continue;
			mesh.shard = (enum mesh_shard)shard;
			mesh.micro_batches = parts;
			r = measure(meshes, &graphs, &mesh);
			if (r == 0 && (mesh.fits || !next)) {
				done |= 1u << shard;
				r = add(meshes, &mesh);
			}
		}
		mesh_graphs_deinit(&graphs);
		if (r < 0)
			return *error ? r : estimate_fail(error, r, "%s", strerror(-r));
		parts = next;
	}
	return 0;
}

/*
 * Opens the model for the mesh's tensor ranks. -EINVAL, with the sentence in text, if the recipe or
 * the network cannot be divided.
 */
static int divide(struct meshes *meshes, const struct mesh *mesh, char *text)
{
	struct estimate *estimate = meshes->estimate;
	set_recipe(meshes, mesh->tensor, RECIPE_SHARD_NONE);
	if (mesh->tensor > estimate->device.links[0].link.ranks)
		return estimate_fail(text, -EINVAL,
				     "train.tensor = %u is more than the %u ranks of a machine",
				     mesh->tensor, estimate->device.links[0].link.ranks);
	if (meshes->batch % (mesh->data * meshes->accumulate))
		return estimate_fail(text, -EINVAL, "data.batch_size = %llu is no multiple of %llu",
				     (unsigned long long)meshes->batch,
				     (unsigned long long)(mesh->data * meshes->accumulate));
	int r = recipe_check(estimate->recipe, false, text);
	return r < 0 ? r : estimate_divide(estimate, mesh->tensor, text);
}

/* Adds the meshes of `data` ranks, or prints why there are none. */
static int add_data(struct meshes *meshes, uint32_t data, FILE *file, char *error)
{
	struct mesh mesh = {.data = data, .tensor = meshes->estimate->options->ranks / data};
	char text[ESTIMATE_ERROR_MAX + RECIPE_ERROR_MAX];
	int r = divide(meshes, &mesh, text);
	if (r == -EINVAL) {
		fprintf(file, "not %u x %u: %s\n", mesh.data, mesh.tensor, text);
		return 0;
	}
	return r < 0 ? estimate_fail(error, r, "%s", text) : add_sharded(meshes, &mesh, error);
}

static int compare(const void *left, const void *right)
{
	const struct mesh *a = left, *b = right;
	if (a->fits != b->fits)
		return a->fits ? -1 : 1;
	double one = a->fits ? a->step.seconds : a->memory;
	double other = a->fits ? b->step.seconds : b->memory;
	if (one != other)
		return one < other ? -1 : 1;
	return (int)a->shard - (int)b->shard;
}

static void print_mesh(const struct meshes *meshes, const struct mesh *mesh, FILE *file)
{
	const struct mesh_step *step = &mesh->step;
	double sent = step->sent.sums + step->sent.reduce_scatters + step->sent.all_gathers;
	char mesh_name[32];
	snprintf(mesh_name, sizeof(mesh_name), "%u x %u", mesh->data, mesh->tensor);
	fprintf(file, "%-13s  %-11s  %13u  %9.1f  %8.1f  %9.2f  %10.2f  %7.1f  %8.0f%s\n",
		mesh_name, mesh_shard_names[mesh->shard], mesh->micro_batches, mesh->memory / 1e9,
		sent / 1e6, step->hidden * 1e3, step->exposed * 1e3, step->seconds * 1e3,
		(double)meshes->batch / step->seconds, mesh->fits ? "" : "  does not fit");
}

static void print(struct meshes *meshes, FILE *file)
{
	const struct estimate_device *device = &meshes->estimate->device;
	for (uint32_t i = 0; i < device->link_count; i++)
		fprintf(file, "%-8s %s: %.0f GB/s and %.1f us a step, up to %u ranks; %s\n",
			i ? "" : "links", device->links[i].kind,
			device->links[i].link.bytes_per_second * 1e-9,
			device->links[i].link.latency_seconds * 1e6, device->links[i].link.ranks,
			device->links[i].source);
	fprintf(file,
		"\nPredictions for a rank of %u, at the roofline, best mesh first. Sums and "
		"gathers "
		"over ranks are hidden\nwhile the rank computes, exposed while it waits for "
		"them.\n\n"
		"%-13s  %-11s  %13s  %9s  %8s  %9s  %10s  %7s  %8s\n",
		meshes->estimate->options->ranks, "data x tensor", "train.shard", "micro-batches",
		"memory GB", "sent MB", "hidden ms", "exposed ms", "step ms", "images/s");
	qsort(meshes->items, meshes->count, sizeof(*meshes->items), compare);
	for (size_t i = 0; i < meshes->count; i++)
		print_mesh(meshes, &meshes->items[i], file);
}

static int check_links(const struct estimate *estimate, char *error)
{
	const struct estimate_device *device = &estimate->device;
	uint32_t ranks = estimate->options->ranks;
	uint32_t most = device->link_count ? device->links[device->link_count - 1].link.ranks : 1;
	if (ranks > most)
		return estimate_fail(error, -EINVAL,
				     "--ranks=%u: \"links\" of %s connect %u rank%s; add a link to "
				     "the file, or plan for fewer",
				     ranks, estimate->options->device, most, most == 1 ? "" : "s");
	uint32_t machine = device->links[0].link.ranks;
	if (ranks > machine && ranks % machine)
		return estimate_fail(
			error, -EINVAL,
			"--ranks=%u: expected a multiple of %u, the ranks of a machine "
			"in \"links\" of %s, or fewer than these",
			ranks, machine, estimate->options->device);
	return 0;
}

int meshes_report(struct estimate *estimate, FILE *file, char *error)
{
	const struct recipe *recipe = estimate->recipe;
	struct meshes meshes = {
		.estimate = estimate,
		.batch = recipe->data.batch_size,
		.val_batch = recipe->data.val_batch_size,
		.accumulate = recipe_accumulate(recipe),
	};
	uint32_t ranks = estimate->options->ranks;
	int r = check_links(estimate, error);
	if (r == 0)
		check_shards(&meshes, file);
	for (uint32_t data = ranks; data && r == 0; data--)
		if (ranks % data == 0)
			r = add_data(&meshes, data, file, error);
	if (r == 0 && !meshes.count)
		r = estimate_fail(error, -EINVAL,
				  "--ranks=%u: no mesh divides data.batch_size = %llu in %llu "
				  "micro-batches; choose a multiple of %u",
				  ranks, (unsigned long long)meshes.batch,
				  (unsigned long long)meshes.accumulate, ranks);
	if (r == 0)
		print(&meshes, file);
	free(meshes.items);
	return r;
}
