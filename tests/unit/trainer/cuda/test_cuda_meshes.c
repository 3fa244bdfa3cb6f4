/*
 * trainer --plan --ranks with stub engines: the tables of the shipped recipes, the division of a
 * vision transformer, and when communication is hidden.
 */
#include "tests/test.h"
#include "tests/unit/trainer/cuda/cuda_planner_test.h"
#include "trainer/device/cuda/engines.h"
#include "trainer/estimate/estimate.h"
#include "trainer/estimate/mesh_schedule.h"

#include <math.h>

enum { ROWS_MAX = 32 };

struct row {
	unsigned data, tensor, micro_batches;
	char shard[16];
	double memory, sent, hidden, exposed, milliseconds, rate;
	bool fits;
};

struct table {
	char text[16384];
	struct row rows[ROWS_MAX];
	unsigned count;
};

static void read_rows(struct table *table)
{
	const char *line = strstr(table->text, "data x tensor");

	table->count = 0;
	while (line && (line = strchr(line, '\n')) && *++line) {
		struct row *row = &table->rows[table->count];

		assert_true(table->count++ < ROWS_MAX);
		assert_int_equal(sscanf(line, "%u x %u %15s %u %lf %lf %lf %lf %lf %lf", &row->data,
					&row->tensor, row->shard, &row->micro_batches, &row->memory,
					&row->sent, &row->hidden, &row->exposed, &row->milliseconds,
					&row->rate),
				 10);
		row->fits = !memmem(line, strcspn(line, "\n"), "does not fit", 12);
	}
}

/* `settings` are paths of recipes and "section.key=value", separated by spaces. */
static int plan(const char *settings, const char *device, uint32_t ranks, struct table *table,
		char *error)
{
	struct estimate_options options = {.device = device, .ranks = ranks};
	struct engines engines = {stub_conv, stub_matmul, "a stub"};
	char words[1024], *printed = NULL;
	struct recipe recipe;
	size_t length;

	assert_int_equal(recipe_init(&recipe), 0);
	snprintf(words, sizeof(words), "%s", settings);
	for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
		if ((strchr(word, '=') ? recipe_override : recipe_load)(&recipe, word, error))
			fail_msg("%s", error);
	FILE *file = open_memstream(&printed, &length);
	int r = estimate_with(&recipe, &options, &engines, file, error);
	fclose(file);
	assert_true(length < sizeof(table->text));
	strcpy(table->text, printed);
	free(printed);
	recipe_deinit(&recipe);
	assert_int_equal(stub_plans, 0);
	read_rows(table);
	return r;
}

static void planned(const char *settings, const char *device, uint32_t ranks, struct table *table)
{
	char error[ESTIMATE_ERROR_MAX] = "";

	if (plan(settings, device, ranks, table, error))
		fail_msg("%s", error);
}

/* Writes a device with the given memory and links to a file. */
static const char *device_file(double memory, const char *links)
{
	static char path[64];

	if (*path)
		unlink(path);
	strcpy(path, "/tmp/test_cuda_meshes.XXXXXX");
	FILE *file = fdopen(mkstemp(path), "w");
	assert_non_null(file);
	fprintf(file,
		"{\"deviceName\": \"G\", \"deviceVer\": 900, \"multiProcessorCount\": 1, "
		"\"totalGlobalMem\": %.0f, \"roofline\": {\"bytes_per_second\": 1e12, "
		"\"flops_per_second\": {\"fp32\": 1e13, \"tf32\": 3e13, \"fp16\": 1e14, \"bf16\": "
		"1e14}, \"source\": \"made up\"}%s}",
		memory, links);
	fclose(file);
	return path;
}

#define LINK(ranks, bytes, latency)                                                                \
	"{\"kind\": \"k\", \"ranks\": " #ranks ", \"bytes_per_second\": " #bytes                   \
	", \"latency_seconds\": " #latency ", \"source\": \"made up\"}"
#define LINKS(...) ", \"links\": [" __VA_ARGS__ "]"

static void expect(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("\"%s\" is not in:\n%s", words, text);
}

/* Fitting meshes come first, fastest first; the others follow, smallest first. */
static void check_order(const struct table *table)
{
	for (unsigned i = 1; i < table->count; i++) {
		const struct row *before = &table->rows[i - 1], *row = &table->rows[i];

		assert_true(before->fits || !row->fits);
		if (row->fits)
			assert_true(before->milliseconds <= row->milliseconds);
		else if (!before->fits)
			assert_true(before->memory <= row->memory);
	}
}

TEST(shipped)
{
	static const struct {
		const char *settings;
		unsigned count;
		const char *refused;
	} recipes[] = {
		{RECIPES "/resnet50_88.ini train.accumulate=1", 4,
		 "not 4 x 2: train.tensor = 2 and model.name = resnet50 cannot be combined"},
		{RECIPES "/vit_base.ini", 12,
		 "not 1 x 8: train.tensor = 8 does not divide the 12 attention heads"},
		{RECIPES "/vit_large.ini", 13, NULL},
		{RECIPES "/vit_1b.ini", 8,
		 "not 2 x 4: train.tensor = 4 does not divide the 22 attention heads"},
	};

	for (size_t i = 0; i < sizeof(recipes) / sizeof(recipes[0]); i++) {
		struct table table;

		planned(recipes[i].settings, DEVICES "/h200.json", 8, &table);
		assert_int_equal(table.count, recipes[i].count);
		assert_true(table.rows[0].fits && table.rows[0].rate > 1000);
		check_order(&table);
		expect(table.text, "Predictions");
		if (recipes[i].refused)
			expect(table.text, recipes[i].refused);
	}
}

static const struct row *find(const struct table *table, unsigned tensor, const char *shard)
{
	for (unsigned i = 0; i < table->count; i++)
		if (table->rows[i].tensor == tensor && strcmp(table->rows[i].shard, shard) == 0)
			return &table->rows[i];
	fail_msg("%u, %s is not in:\n%s", tensor, shard, table->text);
	return NULL;
}

/* Meshes that do not fit come last; with train.accumulate = auto, micro-batches get smaller. */
TEST(memory)
{
	static const char settings[] = "model.name=vit_base_patch16 data.batch_size=64 "
				       "optim.name=adamw";
	struct table table, small;
	char more[128];

	planned(settings, device_file(8e10, LINKS(LINK(8, 1e11, 1e-6))), 2, &table);
	assert_int_equal(table.count, 5);
	/* of 18 x 86.6 MB, 8 are left, and buckets of a 24th */
	double whole = find(&table, 1, "none")->memory;
	assert_true(fabs(whole - find(&table, 1, "parameters")->memory - 0.82) < 0.11);
	const char *device = device_file(1e9 * whole - 4e8, LINKS(LINK(8, 1e11, 1e-6)));
	planned(settings, device, 2, &small);
	assert_false(find(&small, 1, "none")->fits);
	assert_true(find(&small, 1, "parameters")->fits);
	check_order(&small);
	assert_false(small.rows[small.count - 1].fits);
	snprintf(more, sizeof(more), "%s train.accumulate=auto", settings);
	planned(more, device, 2, &small);
	assert_true(find(&small, 1, "none")->micro_batches > 1);
	assert_int_equal(find(&small, 1, "parameters")->micro_batches, 1);
	assert_true(find(&small, 1, "none")->fits);
}

/* Over a link that costs nothing, a step takes the time of a rank's batch. */
TEST(free_link)
{
	struct estimate_options options = {0};
	struct engines engines = {stub_conv, stub_matmul, "a stub"};
	char error[ESTIMATE_ERROR_MAX] = "", *text = NULL;
	struct recipe recipe;
	struct table table;
	size_t length;

	planned("model.name=resnet18 data.batch_size=2048 model.bn_sync=yes",
		device_file(8e10, LINKS(LINK(8, 1e18, 1e-18))), 8, &table);
	assert_int_equal(recipe_init(&recipe), 0);
	assert_int_equal(recipe_override(&recipe, "model.name=resnet18", error), 0);
	assert_int_equal(recipe_override(&recipe, "data.batch_size=256", error), 0);
	options.device = device_file(8e10, "");
	FILE *file = open_memstream(&text, &length);
	assert_int_equal(estimate_with(&recipe, &options, &engines, file, error), 0);
	fclose(file);
	double alone = strtod(strstr(text, "step   ") + strlen("step   "), NULL);
	assert_true(fabs(find(&table, 1, "none")->milliseconds - alone) < 0.1);
	assert_true(find(&table, 1, "none")->exposed < 0.01);
	free(text);
	recipe_deinit(&recipe);
}

/* All time of a link without latency is that of its bytes, either hidden or exposed. */
TEST(times)
{
	static const char links[] = LINKS(LINK(8, 1e9, 1e-18));
	struct table table;

	planned("model.name=vit_tiny_patch16 data.batch_size=96 train.accumulate=2 "
		"optim.name=adamw",
		device_file(8e10, links), 3, &table);
	assert_int_equal(table.count, 5);
	for (unsigned i = 0; i < table.count; i++) {
		const struct row *row = &table.rows[i];

		double share = strcmp(row->shard, "parameters") == 0 ? 0.05 : 0.002;

		/* MB over 1 GB/s are ms; the last block's values serve both passes */
		assert_true(fabs(row->hidden + row->exposed - row->sent) < share * row->sent);
	}
	/* 5.7 million parameters: 4 / 3 x 4 bytes each, and for `gradients` twice 2 / 3 x 4 + 2 / 3
	 * x 2 */
	assert_true(fabs(find(&table, 1, "none")->sent - 30.5) < 0.3);
	assert_true(fabs(find(&table, 1, "gradients")->sent - 38.1) < 0.4);
	/* nothing to compute after the last bucket */
	assert_true(find(&table, 1, "none")->exposed > 1);
	/* 12 blocks of 2 sums each way, of 48 x 197 x 192 values of 2 bytes, for 2 micro-batches */
	assert_true(fabs(find(&table, 3, "none")->sent -
			 4.0 / 3 * 12 * 4 * 48 * 197 * 192 * 2 * 2e-6) < 0.1);
}

/* A rank's store and training program of a network that `tensor` ranks hold together. */
struct divided {
	struct plan_fixture whole; /* recipe and options */
	struct comm group;
	struct device *device;
	struct device_params *params;
	struct model *model;
	struct device_graph *graph;
};

static const struct cuda_program *divide(struct divided *d, const char *settings, uint32_t tensor)
{
	struct device_graph_options options = {.mode = DEVICE_TRAIN};
	struct device_optimizer_spec optimizer = {.kind = DEVICE_ADAMW};
	struct model_input images = {.count = 4, .height = 224, .width = 224, .std = {1, 1, 1}};
	char error[4096] = "";

	plan_fixture_init(&d->whole, settings, 1000, DEVICE_FUSION_B, CUDA_BF16);
	d->group = (struct comm){.world = tensor};
	assert_int_equal(planner_open(&d->whole.options, &d->device), 0);
	d->device->options.group = tensor > 1 ? &d->group : NULL;
	assert_int_equal(device_params_new(d->device, &d->params), 0);
	device_params_divide(d->params);
	if (model_new(&d->whole.recipe.model, 1000, d->params, &d->model, error))
		fail_msg("%s", error);
	assert_int_equal(device_params_allocate(d->params, &optimizer), 0);
	assert_int_equal(device_graph_new(d->params, &options, &d->graph), 0);
	model_record(d->model, d->graph, &images);
	if (device_graph_plan(d->graph, error))
		fail_msg("%s", error);
	return planner_program(d->graph);
}

static void divided_deinit(struct divided *d)
{
	device_graph_free(d->graph);
	model_free(d->model);
	device_params_free(d->params);
	device_close(d->device);
	plan_fixture_deinit(&d->whole);
}

/* A rank of a group has its part of the blocks' matrices and of their work, and the rest whole. */
TEST(parts)
{
	static const struct roofline_device device = {1e18, {1, 1, 1}};
	double seconds[2] = {0}, sums[2] = {0}, store[2];

	for (int i = 0; i < 2; i++) {
		struct divided d;
		struct buckets buckets;
		struct mesh_plan plan = {
			.program = divide(&d, "model.name=vit_tiny_patch16", i ? 3 : 1),
			.model = d.model};
		for (uint32_t j = 0; j < plan.program->op_count; j++) {
			const struct cuda_op *op = &plan.program->ops[j];

			seconds[i] +=
				roofline_seconds(&device, CUDA_BF16, op->flops, (double)op->bytes);
			sums[i] += (double)mesh_group_bytes(op);
		}
		assert_int_equal(buckets_plan(&buckets, d.graph, 1 << 20), 0);
		mesh_plan_store(&plan, &buckets);
		store[i] = (double)plan.store.weights;
		divided_deinit(&d);
	}
	assert_true(sums[0] == 0 && sums[1] == 12.0 * 4 * 4 * 197 * 192 * 2);
	/* of a block 12 x 192 x 192 weights */
	assert_true(store[0] - store[1] == 12 * 12.0 * 192 * 192 * 2 / 3);
	/* patches (without a gradient of the input) and head: whole; 1 FLOP takes a second */
	double whole = 4 * (2 * 196 * 192 * 768 * 2.0 + 3 * 192 * 1000 * 2.0);
	assert_true(fabs((seconds[0] - whole) / (seconds[1] - whole) - 3) < 1e-6);
}

/* Networks too large for tests that allocate them, as timm counts their parameters. */
TEST(large)
{
	static const struct {
		const char *settings;
		uint64_t parameters;
	} nets[] = {
		{"model.name=vit_large_patch16", 304326632},
		/* vit_giant_patch14, with other heads */
		{"model.name=vit_1b_patch14", 1012611432},
	};

	for (int i = 0; i < 2; i++) {
		struct plan_fixture f;
		uint64_t parameters = 0;

		plan_fixture_init(&f, nets[i].settings, 1000, DEVICE_FUSION_B, CUDA_BF16);
		for (size_t j = 0; j < f.params->count; j++)
			parameters += f.params->items[j]->elements;
		assert_int_equal(parameters, nets[i].parameters);
		plan_fixture_deinit(&f);
	}
}

/*
 * Two ranks that gather weights: the store takes what the formula says besides buckets, and the
 * arena at most two more of them than if `arena_bytes` is without. Only for networks without frozen
 * weights, which are divided, too.
 */
static void check_gathered(const char *settings, const struct mesh_store *store,
			   uint64_t arena_bytes)
{
	double buckets = 12 * (double)store->gathered, values = 4 * (double)store->gathered;
	double formula = mesh_store_bytes(store, MESH_SHARD_PARAMETERS, 2) - buckets;
	struct plan_fixture f;
	char words[128];
	size_t longest = 0;

	snprintf(words, sizeof(words), "%s train.shard=parameters", settings);
	plan_fixture_init(&f, words, 1000, DEVICE_FUSION_B, CUDA_BF16);
	const struct device_shards *shards = &f.params->shards;
	for (uint32_t i = 0; i < shards->count; i++)
		longest = shards->buckets[i].count > longest ? shards->buckets[i].count : longest;
	assert_in_range(longest, store->gathered / 2, store->gathered + 2 * 16);
	assert_true(fabs((double)device_params_bytes(f.params) / formula - 1) < 0.01);
	const struct cuda_program *program = plan_fixture_program(&f, DEVICE_TRAIN, 1, 224, false);
	assert_true((double)program->arena.size <= (double)arena_bytes + 1.01 * values);
	plan_fixture_deinit(&f);
}

/* Without division, the formula gives the store's memory. */
TEST(store)
{
	static const char *const settings[] = {
		"model.name=resnet50 optim.name=sgd",
		"model.name=vit_small_patch16 optim.name=adamw train.ema=0.9",
		"model.name=vit_1b_patch14 optim.name=lamb train.freeze=blocks.0.*",
	};

	for (int i = 0; i < 3; i++) {
		struct plan_fixture f;
		struct buckets buckets;
		struct roofline_store store;

		plan_fixture_init(&f, settings[i], 1000, DEVICE_FUSION_B, CUDA_BF16);
		const struct cuda_program *program =
			plan_fixture_program(&f, DEVICE_TRAIN, 1, 224, false);
		roofline_store(f.params, CUDA_BF16, &store);
		assert_int_equal(buckets_plan(&buckets, f.graph, 1 << 20), 0);
		struct mesh_plan plan = {.program = program, .model = f.model};
		mesh_plan_store(&plan, &buckets);
		double bytes = mesh_store_bytes(&plan.store, MESH_SHARD_NONE, 1);
		assert_true(bytes == (double)(store.slot_bytes + store.copy_bytes));
		/*
		 * the longest weight, 512 x 3 x 3 x 512; or a block of 4 x 1408 x 1408 and 2 x 1408
		 * x 6144, of 40, since there are 49 buckets
		 */
		if (i == 0)
			assert_int_equal(plan.store.gathered, 2359296);
		if (i == 2)
			assert_in_range(plan.store.gathered, 25231360, 25231360 * 17 / 16);
		else
			check_gathered(settings[i], &plan.store, program->arena.size);
		plan_fixture_deinit(&f);
	}
}

TEST(mistakes)
{
	static const struct {
		const char *links;
		uint32_t ranks;
		const char *settings, *error;
	} mistakes[] = {
		{"", 2, "", "--ranks=2: \"links\" of /tmp/"},
		{LINKS(LINK(8, 1e11, 1e-6)), 16, "", " connect 8 ranks; add a link"},
		{LINKS(LINK(8, 1e11, 1e-6) "," LINK(64, 1e10, 1e-5)), 12, "",
		 "--ranks=12: expected a multiple of 8"},
		{LINKS(LINK(8, 1e11, 1e-6)), 8, "data.batch_size=12",
		 "--ranks=8: no mesh divides data.batch_size = 12"},
		{LINKS(LINK(8, 0, 1e-6)), 8, "", "bytes_per_second must be a number above 0"},
		{LINKS(LINK(1.5, 1e11, 1e-6)), 8, "",
		 "ranks = 1.5 of links must be a whole number"},
		{LINKS(LINK(8, 1e11, 1e-6) "," LINK(8, 1e10, 1e-5)), 8, "",
		 "a later one of links must connect more ranks"},
		{", \"links\": {}", 8, "", "links must be an array of at most 2 objects"},
	};

	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		char error[ESTIMATE_ERROR_MAX] = "";
		struct table table;

		assert_int_equal(plan(mistakes[i].settings, device_file(8e10, mistakes[i].links),
				      mistakes[i].ranks, &table, error),
				 -EINVAL);
		expect(error, mistakes[i].error);
	}
}

/* Two machines: the ring of data ranks crosses the network, a tensor group must not. */
TEST(machines)
{
	struct table table;

	planned("model.name=vit_tiny_patch16 data.batch_size=12",
		device_file(8e10, LINKS(LINK(2, 1e11, 1e-6) "," LINK(8, 1e9, 1e-4))), 6, &table);
	expect(table.text, "not 2 x 3: train.tensor = 3 is more than the 2 ranks of a machine");
	assert_int_equal(table.count, 4);
	/* at least the two steps between three machines, each way */
	assert_true(table.rows[0].hidden + table.rows[0].exposed > 0.4);
}

/* Every mesh is checked with the batch of all ranks, of which 8 copies of an image are a share. */
TEST(repeats)
{
	struct table table;

	planned("model.name=resnet18 data.batch_size=16 data.repeats=8",
		device_file(8e10, LINKS(LINK(4, 1e11, 1e-6))), 4, &table);
	assert_null(strstr(table.text, "data.repeats"));
}

/* What an optimizer cannot do in parts. */
TEST(optimizers)
{
	static const struct {
		const char *settings, *shard, *tensor;
		unsigned count;
	} optimizers[] = {
		{"optim.name=muon", "optim.name = muon", "optim.name = muon", 1},
		{"optim.name=sgd optim.centralize=yes",
		 "optim.centralize = ", "optim.centralize = ", 1},
		{"optim.name=lamb", NULL, "optim.name = lamb", 4},
		{"optim.name=adamw", NULL, NULL, 5},
	};

	for (size_t i = 0; i < sizeof(optimizers) / sizeof(optimizers[0]); i++) {
		char settings[160], words[128];
		struct table table;

		snprintf(settings, sizeof(settings),
			 "model.name=vit_tiny_patch16 data.batch_size=12 %s",
			 optimizers[i].settings);
		planned(settings, device_file(8e10, LINKS(LINK(8, 1e11, 1e-6))), 3, &table);
		assert_int_equal(table.count, optimizers[i].count);
		snprintf(words, sizeof(words),
			 "not with train.shard: train.shard = optimizer and %s",
			 optimizers[i].shard ? optimizers[i].shard : "");
		assert_int_equal(strstr(table.text, words) != NULL, optimizers[i].shard != NULL);
		snprintf(words, sizeof(words), "not 1 x 3: train.tensor = 3 and %s",
			 optimizers[i].tensor ? optimizers[i].tensor : "");
		assert_int_equal(strstr(table.text, words) != NULL, optimizers[i].tensor != NULL);
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
