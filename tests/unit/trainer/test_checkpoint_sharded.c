/*
 * Sharded checkpoints: what several ranks write joins to the whole checkpoint, to the bit, in every
 * mesh, and is read in every other; indexes and files that lie are refused; removal of folders.
 * The ranks are stores in one process, whose communicators have no transport.
 */
#include "tests/test.h"
#include "tests/unit/trainer/trainer_test.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/sharded.h"
#include "trainer/device/comm/comm.h"
#include "trainer/device/device.h"
#include "trainer/device/params.h"
#include "trainer/device/parts.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CLASSES = 10, RANKS_MAX = 6 };

static char folder[] = "/tmp/test_sharded.XXXXXX";
static char error[CHECKPOINT_ERROR_MAX];
static const char id[] = "0123456789abcdef";

static const struct checkpoint_state saved = {
	.step = 25,
	.epoch = 2,
	.batch = 5,
	.batches_per_epoch = 10,
	.dataset_samples = 100,
	.classes = CLASSES,
	.precision = DEVICE_FP32,
	.best_score = -INFINITY,
	.device = {.updates = 25, .loss_scale = 1},
};
static const struct checkpoint_about about = {.class_names = "[\"a\",\"b\"]"};

/* Ranks of data-parallel groups times ranks of a tensor-parallel group. */
struct mesh {
	unsigned data, group;
	enum device_shard shard;
};

struct store {
	struct comm comm, group;
	struct device *device;
	struct device_params *params;
	struct model *model;
};

static const char *const networks[] = {
	"model.name=resnet_cifar model.depth=8 model.width=0.5 data.train=x.pimg",
	"model.name=vit_small_patch16 model.width=0.25 model.image_size=32 data.train=x.pimg"};
static struct recipe recipe;

static int setup(void **context)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **context)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

static char *in_folder(const char *name)
{
	static char paths[4][CHECKPOINT_PATH_MAX];
	static unsigned next;
	char *path = paths[next++ % 4];
	snprintf(path, CHECKPOINT_PATH_MAX, "%s/%s", folder, name);
	return path;
}

static void choose_network(const char *settings)
{
	char text[256], problem[RECIPE_ERROR_MAX];
	recipe_deinit(&recipe);
	assert_int_equal(recipe_init(&recipe), 0);
	snprintf(text, sizeof(text), "%s", settings);
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
		if (recipe_override(&recipe, word, problem))
			fail_msg("%s", problem);
}

static void store_init(struct store *store, const struct mesh *mesh, unsigned rank)
{
	const struct device_optimizer_spec spec = {
		.kind = DEVICE_ADAMW, .ema = true, .shard = mesh->shard};
	struct device_options options = {.precision = DEVICE_FP32, .threads = 1};
	*store = (struct store){
		.comm = {.rank = rank / mesh->group, .world = mesh->data, .sharers = 1},
		.group = {.rank = rank % mesh->group, .world = mesh->group, .sharers = 1},
	};
	options.comm = &store->comm;
	options.group = &store->group;
	if (device_open("cpu", &options, &store->device, error) ||
	    device_params_new(store->device, &store->params))
		fail_msg("%s", error);
	if (mesh->group > 1)
		device_params_divide(store->params);
	if (model_new(&recipe.model, CLASSES, store->params, &store->model, error))
		fail_msg("%s", error);
	if (device_params_allocate(store->params, &spec))
		fail_msg("%s", device_error(store->device));
}

static void store_deinit(struct store *store)
{
	model_free(store->model);
	device_params_free(store->params);
	device_close(store->device);
}

/* The stores of all ranks; returns their number. */
static unsigned stores_init(struct store *stores, const struct mesh *mesh)
{
	unsigned ranks = mesh->data * mesh->group;
	assert_true(ranks <= RANKS_MAX);
	for (unsigned rank = 0; rank < ranks; rank++)
		store_init(&stores[rank], mesh, rank);
	return ranks;
}

static void stores_deinit(struct store *stores, unsigned ranks)
{
	for (unsigned rank = 0; rank < ranks; rank++)
		store_deinit(&stores[rank]);
}

/* Fills every slot with distinct values, or copies them from another store with whole tensors. */
static void fill_store(struct store *store, struct store *from, bool divided)
{
	float next = 1;
	float *values = malloc(device_params_largest(store->params) * sizeof(float));
	for (enum device_slot slot = 0; slot < DEVICE_SLOTS; slot++) {
		for (size_t i = 0; i < device_params_count(store->params); i++) {
			struct device_param *param = device_params_at(store->params, i);
			if (!device_slot_lasts(slot) || !device_param_has(param, slot))
				continue;
			for (size_t k = 0; k < device_param_elements(param); k++)
				values[k] = next += 0.25F;
			if (device_param_is_divided(param, slot) && !divided)
				continue;
			if (from)
				assert_int_equal(
					device_param_read(device_params_at(from->params, i), slot,
							  values),
					0);
			assert_int_equal(device_param_write(param, slot, values), 0);
		}
	}
	free(values);
}

static char *read_file(const char *path, size_t *ret_size)
{
	FILE *file = fopen(path, "rb");
	char *bytes = NULL;
	size_t size = 0;
	if (!file)
		fail_msg("%s is missing", path);
	fseek(file, 0, SEEK_END);
	size = (size_t)ftell(file);
	rewind(file);
	bytes = malloc(size + 1);
	assert_int_equal(fread(bytes, 1, size, file), size);
	bytes[size] = '\0';
	fclose(file);
	*ret_size = size;
	return bytes;
}

static void write_file(const char *path, const char *bytes, size_t size)
{
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
}

static void same_files(const char *a, const char *b)
{
	size_t size, other;
	char *x = read_file(a, &size), *y = read_file(b, &other);
	assert_int_equal(size, other);
	assert_memory_equal(x, y, size);
	free(x);
	free(y);
}

/* Writes all ranks' parts and the index to a folder of this name. */
static void save(struct store *stores, unsigned ranks, const char *name)
{
	char temporary[CHECKPOINT_PATH_MAX];
	assert_int_equal(checkpoint_begin_folder(in_folder(name), temporary), 0);
	for (unsigned rank = 0; rank < ranks; rank++)
		if (checkpoint_save_part(temporary, stores[rank].params, id, saved.step, error))
			fail_msg("%s", error);
	if (checkpoint_save_index(temporary, stores[0].params, id, &recipe, &saved, &about, error))
		fail_msg("%s", error);
	assert_int_equal(checkpoint_end_folder(temporary, in_folder(name), 0), 0);
}

/* Restores on all ranks; what rank 0 would send to the others is copied from it. */
static void restore(struct store *stores, unsigned ranks, const char *name)
{
	struct checkpoint *checkpoint;
	if (checkpoint_open(in_folder(name), &checkpoint, error) ||
	    checkpoint_restore(checkpoint, stores[0].params, error))
		fail_msg("%s", error);
	assert_true(checkpoint_is_sharded(checkpoint));
	assert_memory_equal(&checkpoint->state, &saved, sizeof(saved));
	for (unsigned rank = 1; rank < ranks; rank++) {
		if (checkpoint_restore_part(in_folder(name), checkpoint_id(checkpoint),
					    stores[rank].params, error))
			fail_msg("rank %u: %s", rank, error);
		fill_store(&stores[rank], &stores[0], false);
	}
	checkpoint_close(checkpoint);
}

static void remove_folder(const char *name)
{
	char command[256];
	snprintf(command, sizeof(command), "rm -rf %s/%s", folder, name);
	assert_int_equal(system(command), 0);
}

static void check_joined(const char *name)
{
	if (checkpoint_join(in_folder(name), in_folder("joined"), error))
		fail_msg("%s", error);
	same_files(in_folder("joined"), in_folder("whole"));
}

/* From one mesh to the other, and to a file in between. */
static void check_meshes(const struct mesh *from, const struct mesh *to)
{
	struct store stores[RANKS_MAX];
	unsigned ranks = stores_init(stores, from);
	for (unsigned rank = 0; rank < ranks; rank++)
		fill_store(&stores[rank], NULL, true);
	save(stores, ranks, "from");
	stores_deinit(stores, ranks);
	check_joined("from");
	ranks = stores_init(stores, to);
	restore(stores, ranks, "from");
	save(stores, ranks, "to");
	stores_deinit(stores, ranks);
	check_joined("to");
	remove_folder("from");
	remove_folder("to");
}

static void save_whole(void)
{
	struct store one;
	store_init(&one, &(struct mesh){1, 1, DEVICE_SHARD_NONE}, 0);
	fill_store(&one, NULL, true);
	if (checkpoint_save(in_folder("whole"), one.params, &recipe, &saved, &about, error))
		fail_msg("%s", error);
	store_deinit(&one);
}

TEST(meshes)
{
	static const struct mesh meshes[] = {
		{1, 1, DEVICE_SHARD_NONE},      {2, 1, DEVICE_SHARD_PARAMETERS},
		{3, 1, DEVICE_SHARD_OPTIMIZER}, {4, 1, DEVICE_SHARD_GRADIENTS},
		{1, 2, DEVICE_SHARD_NONE},      {1, 3, DEVICE_SHARD_NONE},
		{2, 2, DEVICE_SHARD_GRADIENTS}, {3, 2, DEVICE_SHARD_PARAMETERS},
		{2, 3, DEVICE_SHARD_NONE},
	};
	enum { MESHES = sizeof(meshes) / sizeof(meshes[0]), NO_GROUPS = 4 };
	for (int n = 0; n < 2; n++) {
		choose_network(networks[n]);
		save_whole();
		int count = n ? MESHES : NO_GROUPS; /* only transformers can be split */
		for (int i = 0; i < count; i++)
			check_meshes(&meshes[i], &meshes[(i + 5) % count]);
	}
}

/* Ranks divide what they all have, but running statistics, which may differ, are those of rank 0.
 */
TEST(shares)
{
	static const struct device_param_spec specs[] = {
		{.name = "long", .kind = DEVICE_VECTOR, .shape = {20000}},
		{.name = "short", .kind = DEVICE_VECTOR, .shape = {8000}},
		{.name = "statistics", .kind = DEVICE_BUFFER, .shape = {20000}},
	};
	static const uint64_t counts[][2] = {{10000, 10000}, {8000, 0}, {20000, 0}};
	struct comm comm = {.world = 2, .sharers = 1};
	struct device_options options = {.precision = DEVICE_FP32, .threads = 1, .comm = &comm};
	struct device *device;
	struct device_params *params;
	struct device_param *param;
	assert_int_equal(device_open("cpu", &options, &device, error), 0);
	assert_int_equal(device_params_new(device, &params), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(device_param_add(params, &specs[i], &param), 0);
	assert_int_equal(device_params_allocate(params, NULL), 0);
	for (int i = 0; i < 3; i++)
		for (unsigned rank = 0; rank < 2; rank++)
			assert_int_equal(
				device_param_saved_part(device_params_at(params, (size_t)i),
							DEVICE_VALUE, rank)
					.count,
				counts[i][rank]);
	device_params_free(params);
	device_close(device);
}

/* ---- bad indexes and files ---- */

static char *original, *part;
static size_t original_size, part_size;
static const char index_name[] = "bad/" SHARDED_INDEX;
static const char part_name[] = "bad/checkpoint-00002-of-00002.safetensors";

static void make_bad(void)
{
	struct store stores[RANKS_MAX];
	choose_network(networks[1]);
	unsigned ranks = stores_init(stores, &(struct mesh){1, 2, DEVICE_SHARD_NONE});
	for (unsigned rank = 0; rank < ranks; rank++)
		fill_store(&stores[rank], NULL, true);
	save(stores, ranks, "bad");
	stores_deinit(stores, ranks);
	original = read_file(in_folder(index_name), &original_size);
	part = read_file(in_folder(part_name), &part_size);
}

static void refused(const char *words)
{
	struct checkpoint *checkpoint;
	assert_int_equal(checkpoint_open(in_folder("bad"), &checkpoint, error), -EBADMSG);
	if (!strstr(error, words))
		fail_msg("\"%s\" does not say \"%s\"", error, words);
}

/* Replaces the first occurrence in the index, after `after`. */
static void replaced(const char *after, const char *old, const char *new, const char *words)
{
	const char *at = strstr(original, after);
	assert_non_null(at);
	at = strstr(at, old);
	assert_non_null(at);
	char *text = NULL;
	int length =
		asprintf(&text, "%.*s%s%s", (int)(at - original), original, new, at + strlen(old));
	write_file(in_folder(index_name), text, (size_t)length);
	free(text);
	refused(words);
}

/* Changes bytes of the second file, of the same number. */
static void replaced_in_part(const char *old, const char *new, const char *words)
{
	char *copy = malloc(part_size), *at;
	memcpy(copy, part, part_size);
	at = memmem(copy, part_size, old, strlen(old));
	assert_non_null(at);
	assert_int_equal(strlen(old), strlen(new));
	memcpy(at, new, strlen(new));
	write_file(in_folder(part_name), copy, part_size);
	free(copy);
	refused(words);
}

#define QKV "\"blocks.0.attn.qkv.weight\":"

TEST(bad_indexes)
{
	static const char file[] = "\"file\":\"checkpoint-00001-of-00002.safetensors\"";
	make_bad();
	replaced("", "{\"version\":1", "{\"version\":2", "its version is not 1");
	replaced("", "{\"version\":1", "{\"version\":1,\"version\":1", "duplicate object key");
	replaced("", "{\"version\":1", "[", "header: ");
	replaced("", "\"id\":\"0123456789abcdef\"", "\"id\":\"\"", "needs an id of 1 to 32 bytes");
	replaced("", "\"id\":\"0123456789abcdef\"", "\"id\":\"fedcba9876543210\"",
		 "belongs to another checkpoint of step 25");
	replaced("", "\"trainer.step\":\"25\"", "\"trainer.step\":\"26\"",
		 "is of step 25, but the index of step 26");
	replaced("", "\"trainer.step\":\"25\"", "\"trainer.step\":25",
		 "trainer.step is not a text");
	replaced("", "\"trainer.step\":", "\"trainer.pest\":", "metadata trainer.step");
	replaced("", "\"tensors\":{", "\"tensors\":[],\"other\":{", "tensors is not an object");
	replaced(QKV, "\"F32\"", "\"F16\"", "qkv.weight is F16, expected F32");
	replaced(QKV, "\"F32\"", "\"F31\"", "dtype \"F31\" is unknown");
	replaced(QKV, "\"shape\":[", "\"shape\":[4611686018427387904,", "too many elements");
	replaced(QKV, "\"shape\":[", "\"shape\":[0,", "0 elements do not divide");
	replaced(QKV, "\"shape\":[", "\"shape\":[2,",
		 "element 13824 of slice 0 is in no file: the checkpoint is incomplete");
	replaced(QKV, "\"slices\":2", "\"slices\":5", "do not divide by slices and blocks");
	replaced(QKV, "\"slices\":2", "\"slices\":0", "do not divide by slices and blocks");
	replaced(QKV, "\"slices\":2", "\"slices\":1", "needs first, count and a slice below 1");
	replaced(QKV, "\"slices\":2", "\"slices\":3", "ends after the last of 9216 elements");
	replaced(QKV, "\"blocks\":3", "\"blocks\":18446744073709551615", "header: ");
	replaced(QKV, "\"blocks\":3", "\"blocks\":5", "do not divide by slices and blocks");
	replaced(QKV, file, "\"file\":\"a/checkpoint-00001-of-00002.safetensors\"",
		 "a range does not name a file in the folder");
	replaced(QKV, file, "\"file\":\".\"", "does not name a file in the folder");
	replaced(QKV, file, "\"file\":\"another.safetensors\"",
		 "No such file or directory: the "
		 "checkpoint is incomplete");
	replaced(QKV, file, "\"file\":\"checkpoint-00002-of-00002.safetensors\"",
		 "checkpoint-00002-of-00002.safetensors is named twice");
	replaced(QKV, "\"first\":0", "\"first\":1", "ends after the last of 13824 elements");
	replaced(QKV, "\"first\":0,\"count\":13824", "\"first\":1,\"count\":13823",
		 "has 13824 elements, but the index says 13823");
	replaced(QKV, "\"first\":0,", "\"first\":-1,", "needs first, count and a slice");
	replaced(QKV, "\"slice\":0", "\"slice\":1", "element 0 of slice 0 is in no file");
	replaced(QKV, "\"slice\":1", "\"slice\":0", "element 0 of slice 0 is in two files");
	replaced("", "\"layout\":\"channels_last\"", "\"layout\":\"channels_first\"",
		 "layout is not \"channels_last\"");
	replaced(QKV, "\"shape\"", "\"layout\":\"channels_last\",\"shape\"",
		 "layout is not \"channels_last\"");
	replaced("", QKV, "\"blocks.0.attn.other\":",
		 "tensor blocks.0.attn.other is missing: the "
		 "checkpoint is incomplete or damaged; copy "
		 "the folder again");
	replaced("\"tensors\"",
		 "\"optimizer.momentum.cls_token\":", "\"cls_token\":", "duplicate object key");
	write_file(in_folder(index_name), original, original_size / 2);
	refused("header: ");
	unlink(in_folder(index_name));
	refused("a folder without " SHARDED_INDEX);
	write_file(in_folder(index_name), original, original_size);
}

TEST(bad_files)
{
	struct checkpoint *checkpoint;
	replaced_in_part("\"trainer.step\":\"25\"", "\"trainer.step\":\"15\"",
			 "is of step 15, but the index of step 25");
	replaced_in_part("\"trainer.checkpoint\"", "\"trainer.checkpaint\"",
			 "lacks metadata on the checkpoint that it belongs to");
	replaced_in_part(id, "0123456789abcdee", "belongs to another checkpoint of step 25");
	replaced_in_part(QKV "{\"dtype\":\"F32\"", QKV "{\"dtype\":\"I32\"",
			 "qkv.weight is I32, expected F32");
	replaced_in_part("blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.weighs",
			 "tensor blocks.0.attn.qkv.weight is missing");
	write_file(in_folder(part_name), part, part_size - 1);
	refused("the file is truncated or damaged");
	unlink(in_folder(part_name));
	refused("No such file or directory: the checkpoint is incomplete");
	mkdir(in_folder(part_name), 0777);
	refused("not a regular file");
	rmdir(in_folder(part_name));
	write_file(in_folder(part_name), part, part_size);
	if (checkpoint_open(in_folder("bad"), &checkpoint, error))
		fail_msg("%s", error);
	checkpoint_close(checkpoint);
	/* a tensor that the index does not name */
	json_t *index = json_loads(original, 0, NULL);
	json_object_del(json_object_get(index, "tensors"), "blocks.0.attn.qkv.weight");
	char *text = json_dumps(index, 0);
	write_file(in_folder(index_name), text, strlen(text));
	refused("tensors, but the index names");
	json_decref(index);
	free(text);
	write_file(in_folder(index_name), original, original_size);
}

/* Two names of a file whose header is much longer than the index. */
TEST(long_headers)
{
	size_t size = 700 << 10;
	char *text = malloc(size + 1), index[512];
	memset(text, 'x', size);
	text[size] = '\0';
	const struct safetensors_entry metadata[] = {
		{"trainer.checkpoint", id}, {"trainer.step", "25"}, {"x", text}};
	const struct safetensors_tensor tensor = {.name = "t",
						  .type = SAFETENSORS_F32,
						  .rank = 1,
						  .shape = {1},
						  .data = "abc",
						  .size = 4};
	const struct safetensors_writer writer = {
		.tensors = &tensor, .count = 1, .metadata = metadata, .metadata_count = 3};
	struct safetensors *file;
	mkdir(in_folder("long"), 0777);
	assert_int_equal(safetensors_write(in_folder("long/a"), &writer, error), 0);
	assert_int_equal(link(in_folder("long/a"), in_folder("long/b")), 0);
	snprintf(index, sizeof(index),
		 "{\"version\":1,\"id\":\"%s\",\"metadata\":{\"trainer.step\":\"25\"},\"tensors\":{"
		 "\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"ranges\":["
		 "{\"file\":\"a\",\"first\":0,\"count\":1},{\"file\":\"b\",\"first\":1,\"count\":1}"
		 "]}}}",
		 id);
	write_file(in_folder("long/" SHARDED_INDEX), index, strlen(index));
	assert_int_equal(safetensors_open(in_folder("long"), &file, error), -EBADMSG);
	assert_non_null(strstr(error, "are too long for an index of"));
	free(text);
}

/* Ranks read convolutions as they are stored. */
TEST(other_layout)
{
	struct store store;
	struct checkpoint *checkpoint;
	static const char layout[] = "\"layout\":\"channels_last\"";
	char *copy = strdup(original), *at = strstr(copy, layout);
	memset(at, ' ', strlen(layout) + 1);
	write_file(in_folder(index_name), copy, original_size);
	store_init(&store, &(struct mesh){1, 1, DEVICE_SHARD_NONE}, 0);
	if (checkpoint_open(in_folder("bad"), &checkpoint, error))
		fail_msg("%s", error);
	assert_int_equal(checkpoint_restore(checkpoint, store.params, error), -EBADMSG);
	assert_non_null(strstr(error, "patch_embed.proj.weight: expected the layout"));
	checkpoint_close(checkpoint);
	store_deinit(&store);
	free(copy);
	write_file(in_folder(index_name), original, original_size);
}

/* A file that shrinks while it is read, and one that another checkpoint has replaced. */
TEST(changed_files)
{
	struct store store;
	struct checkpoint *checkpoint;
	store_init(&store, &(struct mesh){1, 1, DEVICE_SHARD_NONE}, 0);
	if (checkpoint_open(in_folder("bad"), &checkpoint, error))
		fail_msg("%s", error);
	assert_int_equal(checkpoint_restore(checkpoint, store.params, error), 0);
	assert_int_equal(truncate(in_folder(part_name), (off_t)part_size / 2), 0);
	assert_int_equal(checkpoint_restore(checkpoint, store.params, error), -EBADMSG);
	assert_non_null(strstr(error, "when it was opened"));
	checkpoint_close(checkpoint);
	write_file(in_folder(part_name), part, part_size);
	assert_int_equal(checkpoint_restore_part(in_folder("bad"), "other", store.params, error),
			 -ESTALE);
	assert_int_equal(checkpoint_restore_part(in_folder("gone"), id, store.params, error),
			 -ENOENT);
	assert_non_null(strstr(error, "trainer --join"));
	assert_int_equal(checkpoint_restore_part(in_folder("bad"), id, store.params, error), 0);
	store_deinit(&store);
}

/* ---- another user, who exchanges the folder for a file while it is opened ---- */

static atomic_bool exchanges;

static void exchange(void)
{
	char a[128], b[128];
	snprintf(a, sizeof(a), "%s/bad", folder);
	snprintf(b, sizeof(b), "%s/file", folder);
	renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

static void *exchange_often(void *unused)
{
	while (exchanges)
		exchange();
	return NULL;
}

TEST(exchanged)
{
	struct store store;
	pthread_t thread;
	char path[CHECKPOINT_PATH_MAX];
	strcpy(path, in_folder("bad"));
	assert_int_equal(checkpoint_join(path, in_folder("file"), error), 0);
	store_init(&store, &(struct mesh){1, 1, DEVICE_SHARD_NONE}, 0);
	exchanges = true;
	assert_int_equal(pthread_create(&thread, NULL, exchange_often, NULL), 0);
	for (int found = 0; found < 100;) {
		int r = checkpoint_restore_part(path, "other", store.params, error);
		assert_true(r < 0);
		found += r != -ENOENT;
	}
	exchanges = false;
	pthread_join(thread, NULL);
	if (!checkpoint_is_folder(path))
		exchange();
	store_deinit(&store);
}

TEST(joins_nothing_else)
{
	assert_int_equal(checkpoint_join(in_folder("gone"), in_folder("no"), error), -ENOTDIR);
	assert_int_equal(checkpoint_join(in_folder("bad/" SHARDED_INDEX), in_folder("no"), error),
			 -ENOTDIR);
	assert_int_equal(checkpoint_join(folder, in_folder("no"), error), -EBADMSG);
	assert_non_null(strstr(error, "thus not a complete sharded checkpoint"));
	assert_int_equal(access(in_folder("no"), F_OK), -1);
	free(original);
	free(part);
	recipe_deinit(&recipe);
}

/* ---- folders ---- */

static void make_folder(const char *name)
{
	char file[128];
	mkdir(in_folder(name), 0777);
	snprintf(file, sizeof(file), "%s/x", name);
	write_file(in_folder(file), "x", 1);
}

static bool exists(const char *name)
{
	return access(in_folder(name), F_OK) == 0;
}

TEST(folders)
{
	static const char *const names[] = {"run",
					    "run/checkpoint-00000005.sharded",
					    "run/checkpoint-00000006.sharded",
					    "run/checkpoint-00000008.sharded",
					    "run/checkpoint-00000009.sharded.77.tmp",
					    "run/checkpoint-8.sharded"};
	char path[CHECKPOINT_PATH_MAX], temporary[CHECKPOINT_PATH_MAX];
	uint64_t step = 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		make_folder(names[i]);
	write_file(in_folder("run/checkpoint-00000007.safetensors"), "x", 1);
	assert_int_equal(checkpoint_newest(in_folder("run"), UINT64_MAX, &step, path), 0);
	assert_string_equal(path, in_folder(names[3]));
	assert_int_equal(checkpoint_newest(in_folder("run"), step, &step, path), 0);
	assert_string_equal(path, in_folder("run/checkpoint-00000007.safetensors"));
	assert_true(checkpoint_is_folder(in_folder(names[3])));
	assert_false(checkpoint_is_folder(in_folder("run")));
	assert_int_equal(checkpoint_prune(in_folder("run"), 3), 0);
	assert_false(exists(names[1]));
	assert_false(exists(names[4]));
	assert_true(exists(names[2]) && exists(names[3]) && exists(names[5]));
	/* an earlier one of the step was set aside before */
	make_folder("run/checkpoint-00000008.sharded.unreadable");
	assert_int_equal(checkpoint_clear(in_folder("run"), 7, true), 0);
	assert_true(exists("run/checkpoint-00000008.sharded.unreadable/x"));
	assert_false(exists(names[3]));
	assert_int_equal(checkpoint_clear(in_folder("run"), 0, false), 0);
	assert_int_equal(checkpoint_newest(in_folder("run"), UINT64_MAX, &step, path), -ENOENT);
	/* what could not be written leaves nothing */
	assert_int_equal(checkpoint_path(in_folder("run"), 9, true, path), 0);
	assert_int_equal(checkpoint_begin_folder(path, temporary), 0);
	char *file = strdup(strrchr(temporary, '/') + 1), inside[512];
	snprintf(inside, sizeof(inside), "run/%s/x", file);
	write_file(in_folder(inside), "x", 1);
	assert_int_equal(checkpoint_end_folder(temporary, path, -ENOSPC), -ENOSPC);
	assert_int_equal(access(temporary, F_OK), -1);
	assert_int_equal(access(path, F_OK), -1);
	free(file);
}

TEST_MAIN(setup, teardown)
