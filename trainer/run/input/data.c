#include "trainer/run/input/data.h"
#include "format/base/system/clock.h"
#include "format/base/text/sentence.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	POLL_MS = 200,
	PATIENCE_S = 300,
	OPEN_AGAIN_MS = 100,
	OPENING_FIRST_S = 2, /* before a line on a dataset that is opened */
	OPENING_NEXT_S = 10, /* between two */
};

#define data_fail(error, code, ...) sentence_fail(error, DATA_ERROR_MAX, code, __VA_ARGS__)

/* ImageNet's statistics, for datasets that record none. */
static const double imagenet_mean[3] = {123.675, 116.28, 103.53},
		    imagenet_std[3] = {58.395, 57.12, 57.375};

/* What the daemon knows of the datasets of data.train: [order->count], NULL if not looked up. */
struct train_facts {
	struct feed_dataset **dataset;
};

/*
 * Sets mean and deviation of a channel over all samples as they are drawn: those of the datasets,
 * weighted by shares. Returns false if a dataset records none.
 */
static bool data_mean_std(const struct train_order *order, const struct train_facts *facts, int c,
			  double *ret_mean, double *ret_std)
{
	double mean = 0, square = 0;
	for (uint32_t i = 0; i < order->count; i++) {
		const struct feed_dataset *dataset = facts->dataset[i];
		if (order->datasets[i].drawn == 0)
			continue;
		if (!dataset->has_statistics || !(dataset->std[c] > 0) ||
		    !isfinite(dataset->std[c]))
			return false;
		double weight = order->datasets[i].drawn;
		mean += weight * dataset->mean[c];
		square += weight *
			  (dataset->std[c] * dataset->std[c] + dataset->mean[c] * dataset->mean[c]);
	}
	*ret_mean = order->count == 1 ? facts->dataset[0]->mean[c] : mean;
	*ret_std = order->count == 1 ? facts->dataset[0]->std[c]
				     : sqrt(fmax(square - mean * mean, DBL_MIN));
	return true;
}

static void data_choose_mean_std(struct data *data, const struct train_facts *facts)
{
	const struct recipe_data *recipe = &data->recipe->data;
	for (int c = 0; c < 3; c++) {
		double mean = imagenet_mean[c], std = imagenet_std[c];
		data_mean_std(data->order, facts, c, &mean, &std);
		data->mean[c] = recipe->mean.count ? recipe->mean.value[c] : mean;
		data->std[c] = recipe->mean.count ? recipe->std.value[c] : std;
	}
}

/* Looks up the dataset at a key's path. */
static int data_find_dataset(const struct data *data, const char *key, const char *path,
			     struct feed_dataset **ret_dataset, char *error)
{
	char problem[FEED_ERROR_MAX] = "";
	int r = feed_dataset(data->socket, path, ret_dataset, problem);
	if (r < 0)
		return data_fail(error, r, "%s: %.900s", key, *problem ? problem : strerror(-r));
	return 0;
}

/*
 * With data.target: finds it in a dataset, the value of `key`, and stores it. All datasets must
 * agree on it.
 */
static int data_look_up_target(struct data *data, const char *key, const char *path,
			       const struct feed_dataset *dataset, char *error)
{
	const struct recipe_data *recipe = &data->recipe->data;
	const struct target *known = &data->target;
	struct target found;
	struct uuid uuid;
	if (!*recipe->target)
		return 0;
	memcpy(&uuid, dataset->uuid, sizeof(uuid));
	int r = target_find(data->recipe, key, path, &uuid, dataset->classes, &found, error);
	if (r < 0)
		return r;
	if (known->outputs &&
	    (known->list != found.list || (!found.list && known->outputs != found.outputs)))
		return data_fail(error, -EINVAL,
				 "data.target = %.100s has another type or shape in %s = "
				 "%.300s than in data.train = %.300s: pack both with the same "
				 "schema",
				 recipe->target, key, path,
				 data->order ? data->order->datasets[0].path : "");
	if (!known->outputs)
		data->target = found;
	return 0;
}

/* True if the outputs of the network are classes, which have names. */
static bool data_has_classes(const struct data *data)
{
	return !*data->recipe->data.target || data->target.list;
}

/* Sets the number of outputs, and checks model.classes. found: of data.train. */
static int data_choose_outputs(struct data *data, uint32_t found, char *error)
{
	const struct recipe *recipe = data->recipe;
	uint32_t chosen = (uint32_t)recipe->model.classes;
	data->classes = chosen ? chosen : found;
	if (!data_has_classes(data))
		return data->classes == found
			       ? 0
			       : data_fail(error, -EINVAL,
					   "model.classes = %u, but data.target = %.100s has %u "
					   "number%s: set model.classes=0",
					   chosen, recipe->data.target, found,
					   found == 1 ? "" : "s");
	if (!data->classes)
		return data_fail(error, -EINVAL, "%s has no classes: set model.classes",
				 recipe->data.train);
	if (data->classes == 1 && !*recipe->data.target)
		return data_fail(error, -EINVAL,
				 "data.train = %.600s has one class, but a classifier needs at "
				 "least 2: pack images of other classes too, one folder per class",
				 recipe->data.train);
	if (data->classes < found)
		return data_fail(error, -EINVAL, "model.classes = %u, but %s has %u class%s",
				 data->classes, recipe->data.train, found, found == 1 ? "" : "es");
	return 0;
}

/*
 * Checks that a dataset of data.train has the classes of the first one: names are compared as they
 * are, since the daemon would give other numbers to classes whose names differ.
 */
static int data_compare_part(const struct train_order *order, const struct train_facts *facts,
			     uint32_t part, char *error)
{
	const struct feed_dataset *a = facts->dataset[0], *b = facts->dataset[part];
	const char *first = order->datasets[0].path, *other = order->datasets[part].path;
	static const char remedy[] = "pack all datasets of data.train with the same classes in the "
				     "same order (packimg convert --classes FILE)";
	for (uint32_t i = 0; i < a->classes && i < b->classes; i++)
		if (strcmp(a->class_names[i], b->class_names[i]) != 0)
			return data_fail(error, -EINVAL,
					 "data.train: class %u is \"%.60s\" in %.250s, but "
					 "\"%.60s\" in %.250s: %s",
					 i, b->class_names[i], other, a->class_names[i], first,
					 remedy);
	if (a->classes != b->classes)
		return data_fail(
			error, -EINVAL, "data.train: %.250s has %u class%s, but %.250s has %u: %s",
			other, b->classes, b->classes == 1 ? "" : "es", first, a->classes, remedy);
	return 0;
}

/* Looks up dataset number `part` of data.train. */
static int data_look_up_part(struct data *data, struct train_facts *facts, uint32_t part,
			     char *error)
{
	struct train_dataset *own = &data->order->datasets[part];
	int r = data_find_dataset(data, "data.train", own->path, &facts->dataset[part], error);
	if (r < 0)
		return r;
	const struct feed_dataset *found = facts->dataset[part];
	own->samples = found->samples;
	memcpy(&own->uuid, found->uuid, sizeof(own->uuid));
	r = data_look_up_target(data, "data.train", own->path, found, error);
	return r < 0 || !data_has_classes(data)
		       ? r
		       : data_compare_part(data->order, facts, part, error);
}

/* Checks that data.class_sampling has a weight for each class. */
static int data_check_class_sampling(const struct data *data, uint32_t classes, char *error)
{
	unsigned count = data->recipe->data.class_sampling.count;
	if (!count || count == classes)
		return 0;
	return data_fail(error, -EINVAL,
			 "data.class_sampling has %u number%s, but data.train = %.300s has %u "
			 "class%s: give one for each",
			 count, count == 1 ? "" : "s", data->recipe->data.train, classes,
			 classes == 1 ? "" : "es");
}

static int data_look_up_train(struct data *data, struct train_facts *facts, char *error)
{
	int r = train_order_new(&data->recipe->data, &data->order, error);
	if (r < 0)
		return r;
	const struct train_order *order = data->order;
	facts->dataset = calloc(order->count, sizeof(struct feed_dataset *));
	if (!facts->dataset)
		return data_fail(error, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < order->count; i++) {
		r = data_look_up_part(data, facts, i, error);
		if (r < 0)
			return r;
	}
	const struct feed_dataset *first = facts->dataset[0];
	data->samples = train_order_samples(order);
	train_order_uuid(order, &data->train_uuid);
	data->normalises = true;
	data_choose_mean_std(data, facts);
	r = data_check_class_sampling(data, first->classes, error);
	if (r < 0)
		return r;
	if (data_has_classes(data))
		data->class_names = class_names_write(first->class_names, first->classes);
	return data_choose_outputs(
		data, data_has_classes(data) ? first->classes : data->target.outputs, error);
}

/* Class names and their source. */
struct known_classes {
	const char *const *name; /* [count] */
	uint32_t count;
	const char *where, *file;
};

/*
 * Compares class names. Samples carry class numbers, and a number that means another class than in
 * training would be scored against the wrong class.
 */
static int data_compare_classes(const struct recipe_data *recipe, const struct known_classes *known,
				const struct feed_dataset *val, char *error)
{
	uint32_t i = class_names_differ(val->class_names, val->classes, known->name, known->count);
	if (i == val->classes || i == known->count)
		return 0;
	return data_fail(
		error, -EINVAL,
		"data.val = %.300s: class %u is \"%.60s\", but \"%.60s\" in %s%.300s: pack it with "
		"the same names in the same order (packimg convert --classes FILE)",
		recipe->val, i, val->class_names[i], known->name[i], known->where, known->file);
}

/*
 * For weights without class names: requires that the number of classes equals data.val's or is set
 * in the recipe.
 */
static int data_compare_counts(const struct data *data, const struct weights_metadata *weights,
			       const struct feed_dataset *val, char *error)
{
	if (data->recipe->model.classes || val->classes == data->classes)
		return 0;
	return data_fail(error, -EINVAL,
			 "data.val = %.300s has %u class%s, but %.300s has %u, without names: set "
			 "model.classes=%u to evaluate its labels as numbers of these classes",
			 data->recipe->data.val, val->classes, val->classes == 1 ? "" : "es",
			 weights->file, data->classes, data->classes);
}

static int data_compare_val(const struct data *data, const struct weights_metadata *weights,
			    const struct known_classes *known, const struct feed_dataset *val,
			    char *error)
{
	const struct recipe_data *recipe = &data->recipe->data;
	if (!data_has_classes(data))
		return data->target.outputs == data->classes
			       ? 0
			       : data_fail(error, -EINVAL,
					   "data.target = %.100s has %u number%s in data.val = "
					   "%.300s, but the network has %u output%s: evaluate the "
					   "weights of a network that was trained on it",
					   recipe->target, data->target.outputs,
					   data->target.outputs == 1 ? "" : "s", recipe->val,
					   data->classes, data->classes == 1 ? "" : "s");
	int r = data_compare_classes(recipe, known, val, error);
	if (r < 0)
		return r;
	if (val->classes > data->classes)
		return data_fail(
			error, -EINVAL,
			"data.val = %.600s has %u classes, but the model has %u: pack it with the "
			"classes of the training set (packimg convert --classes FILE)",
			recipe->val, val->classes, data->classes);
	if (weights && !weights->named && !*recipe->train)
		return data_compare_counts(data, weights, val, error);
	return 0;
}

static int data_look_up_val(struct data *data, const struct weights_metadata *weights,
			    const struct known_classes *known, char *error)
{
	const struct recipe_data *recipe = &data->recipe->data;
	struct feed_dataset *dataset;
	int r = data_find_dataset(data, "data.val", recipe->val, &dataset, error);
	if (r < 0)
		return r;
	data->val_samples = dataset->samples;
	memcpy(&data->val_uuid, dataset->uuid, sizeof(data->val_uuid));
	r = data_look_up_target(data, "data.val", recipe->val, dataset, error);
	if (r == 0)
		r = data_compare_val(data, weights, known, dataset, error);
	feed_dataset_free(dataset);
	return r;
}

/* Copies normalisation and classes from the weights, if there is no training set. */
static int data_take_from_weights(struct data *data, const struct weights_metadata *weights,
				  char *error)
{
	const struct recipe *recipe = data->recipe;
	bool chosen = recipe->data.mean.count > 0, known = weights->std[0] > 0;
	if (!data->classes)
		data->classes =
			recipe->model.classes ? (uint32_t)recipe->model.classes : weights->classes;
	if (chosen || known) {
		data->normalises = true;
		memcpy(data->mean, chosen ? recipe->data.mean.value : weights->mean,
		       sizeof(data->mean));
		memcpy(data->std, chosen ? recipe->data.std.value : weights->std,
		       sizeof(data->std));
	}
	for (int c = 0; c < 3 && !data->normalises; c++)
		data->std[c] = 1; /* float images are used as they are */
	if (data->classes == 1 && !*recipe->data.target)
		return data_fail(error, -EINVAL,
				 "%.600s has one output, but a classifier needs at least 2 "
				 "classes: use the weights of a classifier",
				 weights->file);
	return 0;
}

static int data_fail_train(const struct weights_metadata *weights, int r, char *error)
{
	size_t length = strlen(error);
	if (weights)
		snprintf(error + length, DATA_ERROR_MAX - length,
			 "; %.300s has no class names, so they are read from data.train: set "
			 "data.train= to skip it",
			 weights->file);
	return r;
}

/*
 * Looks up data.val, and compares it with the weights to evaluate. train: NULL if there is no
 * training set.
 */
static int data_look_up_rest(struct data *data, const struct weights_metadata *weights,
			     const struct feed_dataset *train, char *error)
{
	const struct recipe_data *recipe = &data->recipe->data;
	struct known_classes known = {0};
	if (train)
		known = (struct known_classes){train->class_names, train->classes,
					       "data.train = ", data->order->datasets[0].path};
	if (weights) {
		int r = data_take_from_weights(data, weights, error);
		if (r < 0)
			return r;
	}
	if (weights && weights->named)
		known = (struct known_classes){weights->class_names.name,
					       weights->class_names.count,
					       "trainer.class_names of ", weights->file};
	return *recipe->val ? data_look_up_val(data, weights, &known, error) : 0;
}

/* Looks up the datasets. weights: NULL to train. */
static int data_look_up(struct data *data, const struct weights_metadata *weights, char *error)
{
	struct train_facts facts = {0};
	int r = 0;
	if (!weights || (!weights->named && *data->recipe->data.train)) {
		r = data_look_up_train(data, &facts, error);
		if (r < 0)
			r = data_fail_train(weights, r, error);
	}
	if (r == 0)
		r = data_look_up_rest(data, weights, facts.dataset ? facts.dataset[0] : NULL,
				      error);
	for (uint32_t i = 0; facts.dataset && i < data->order->count; i++)
		feed_dataset_free(facts.dataset[i]);
	free(facts.dataset);
	return r;
}

unsigned data_daemon_threads(const struct recipe_data *recipe, const struct comm *comm,
			     bool on_cpus)
{
	unsigned cpus = (unsigned)CPU_COUNT(&comm->cpus);
	if (recipe->threads || !on_cpus)
		return (unsigned)recipe->threads;
	return cpus > 4 ? cpus / 4 : 1;
}

static int data_set_socket(struct data *data, const char *socket, char *error)
{
	if (snprintf(data->socket, sizeof(data->socket), "%s", socket) < (int)sizeof(data->socket))
		return 0;
	return data_fail(error, -ENAMETOOLONG,
			 "the path of the socket, \"%s\", is longer than %d bytes", socket,
			 DATA_SOCKET_MAX - 1);
}

/*
 * Starts a private daemon. It serves all ranks of the machine, so it may use all their CPUs even if
 * each rank is bound to some.
 */
static int data_start_daemon(struct data *data, unsigned threads, char *error)
{
	cpu_set_t own;
	bool known = !sched_getaffinity(0, sizeof(own), &own);
	if (known)
		sched_setaffinity(0, sizeof(data->comm->cpus), &data->comm->cpus);
	int r = feed_daemon_start(NULL, threads, &data->daemon, error);
	if (known)
		sched_setaffinity(0, sizeof(own), &own);
	return r < 0 ? r : data_set_socket(data, feed_daemon_socket(data->daemon), error);
}

/*
 * Finds this rank's socket: the given one, or that of the private daemon started by the machine's
 * first rank. All ranks gather the sockets of all. A rank that failed takes part as well, since the
 * others wait for it.
 */
static int data_find_socket(struct data *data, const char *named, unsigned threads, char *error)
{
	struct comm *comm = data->comm;
	char leaders[DATA_SOCKET_MAX] = "";
	int r = 0, sent = 0;
	if (named)
		r = data_set_socket(data, named, error);
	else if (comm->rank == comm->leader)
		r = data_start_daemon(data, threads, error);
	for (unsigned rank = 0; rank < comm->world && !sent; rank++) {
		char theirs[DATA_SOCKET_MAX];
		memcpy(theirs, data->socket, sizeof(theirs));
		sent = comm_broadcast(comm, theirs, sizeof(theirs), rank);
		if (rank == comm->leader)
			memcpy(leaders, theirs, sizeof(theirs));
	}
	if (r < 0)
		return r;
	if (sent < 0)
		return data_fail(error, sent, "%s", comm_error(comm));
	if (!*data->socket)
		memcpy(data->socket, leaders, sizeof(data->socket));
	if (!*data->socket)
		return data_fail(error, -ECANCELED, "rank %u could not start the daemon",
				 comm->leader);
	return 0;
}

int data_open(struct data *data, const struct recipe *recipe, struct comm *comm,
	      struct comm *data_comm, const char *socket, unsigned threads,
	      const struct weights_metadata *weights, char *error)
{
	*data = (struct data){.recipe = recipe, .comm = comm, .data_comm = data_comm};
	*error = '\0';
	int r = data_find_socket(data, socket, threads, error);
	if (r == 0)
		r = data_look_up(data, weights, error);
	data->reached = r == 0;
	if (r < 0)
		data_close(data);
	return r;
}

void data_close(struct data *data)
{
	feed_daemon_stop(data->daemon);
	data->daemon = NULL;
	free(data->class_names);
	data->class_names = NULL;
	train_order_free(data->order);
	data->order = NULL;
}

uint32_t data_train_share(const struct data *data)
{
	return (uint32_t)data->recipe->data.batch_size / data->data_comm->world;
}

uint32_t data_micro_share(const struct data *data)
{
	return data_train_share(data) / (uint32_t)data->recipe->train.accumulate;
}

uint32_t data_target_numbers(const struct data *data)
{
	return data->target.outputs ? data->classes : 1;
}

uint32_t data_share(const struct data *data, enum data_part part)
{
	return part == DATA_TRAIN   ? data_train_share(data)
	       : part == DATA_WHOLE ? (uint32_t)data->recipe->data.batch_size
				    : data_val_share(data);
}

uint32_t data_val_share(const struct data *data)
{
	const struct recipe_data *recipe = &data->recipe->data;
	uint64_t batch = recipe->val_batch_size
				 ? recipe->val_batch_size
				 : recipe->batch_size / data->recipe->train.accumulate;
	return (uint32_t)((batch + data->data_comm->world - 1) / data->data_comm->world);
}

/* -ESTALE if a feed has another dataset at `path` than data_open() had. */
static int data_compare_uuid(const char *path, const struct uuid *known, const uint8_t *found,
			     char *error)
{
	struct uuid opened;
	char then[UUID_TEXT], now[UUID_TEXT];
	memcpy(&opened, found, sizeof(opened));
	if (!uuid_differ(known, &opened))
		return 0;
	uuid_write(known->bytes, then);
	uuid_write(opened.bytes, now);
	return data_fail(error, -ESTALE,
			 "%.600s was replaced by another dataset: its UUID was %s when the run "
			 "started, and is now %s",
			 path, then, now);
}

/*
 * Checks that the dataset files were not replaced during the run. Only new feeds read the new
 * files.
 */
static int data_check_unchanged(const struct data *data, enum data_part part,
				const struct feed *feed, char *error)
{
	struct feed_info info = {.size = sizeof(info)};
	feed_info(feed, &info);
	if (part == DATA_VAL)
		return data_compare_uuid(data->recipe->data.val, &data->val_uuid, info.dataset_uuid,
					 error);
	const struct train_dataset *datasets = data->order->datasets;
	if (!data->order->chooses)
		return data_compare_uuid(datasets[0].path, &datasets[0].uuid, info.dataset_uuid,
					 error);
	for (uint32_t i = 0; i < data->order->count; i++) {
		struct feed_opened_part opened = {.size = sizeof(opened)};
		int r = feed_opened_part(feed, i, &opened);
		if (r < 0)
			return data_fail(error, -EPROTO,
					 "the daemon opened fewer datasets than data.train lists");
		r = data_compare_uuid(datasets[i].path, &datasets[i].uuid, opened.uuid, error);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * True if the daemon was reachable before and is not now. Distinguishes this from -ENOENT of a
 * dataset.
 */
static bool data_lost_daemon(const struct data *data, int r, const char *error)
{
	return data->reached &&
	       (r == -ECONNREFUSED || r == -ECONNRESET || r == -ESHUTDOWN ||
		(r == -ENOENT && strncmp(error, "No daemon", strlen("No daemon")) == 0));
}

/* Of a dataset in a store: how far it is opened. */
struct data_opening {
	const struct data *data;
	const char *dataset;
	double tell_s; /* when a line is due */
};

/* feed_options.fetching */
static int data_tell_opening(void *user, uint64_t done, uint64_t total)
{
	struct data_opening *opening = user;
	char line[DATA_ERROR_MAX];
	double now_s = clock_s(CLOCK_MONOTONIC);
	if (!opening->data->say || now_s < opening->tell_s)
		return 0;
	opening->tell_s = now_s + OPENING_NEXT_S;
	if (total == 0)
		sentence_write(line, sizeof(line), "opening %s: its header is not there yet",
			       opening->dataset);
	else
		sentence_write(line, sizeof(line),
			       "opening %s: %.1f of %.1f MB of its index are there",
			       opening->dataset, (double)done / 1e6, (double)total / 1e6);
	opening->data->say(opening->data->say_context, line);
	return 0;
}

/* Opens a feed. Waits if the daemon restarts, because evaluations open feeds during a run. */
static int data_open_with_retries(const struct data *data, const struct feed_options *options,
				  struct feed **ret_feed, char *error)
{
	double until = clock_s(CLOCK_MONOTONIC) + (double)data->recipe->data.reconnect;
	for (;;) {
		int r = feed_open(options, ret_feed, error);
		if (!data_lost_daemon(data, r, error) || clock_s(CLOCK_MONOTONIC) >= until)
			return r;
		if (poll(NULL, 0, OPEN_AGAIN_MS) < 0)
			return r; /* a signal interrupted the wait, most likely a request to stop */
	}
}

void data_set_writable(struct data *data, bool writable)
{
	data->writable = writable;
}

bool data_defers(const struct data *data, enum data_part part)
{
	return part == DATA_TRAIN && data->recipe->data.augment == RECIPE_AUGMENT_DEVICE;
}

/* A network takes one image of each sample. */
static int data_check_views(const struct feed *feed, char *error)
{
	struct feed_section images = {.size = sizeof(images)};
	if (feed_section(feed, NULL, 0, &images) < 0 || images.view_name[0] == '\0')
		return 0;
	snprintf(error, DATA_ERROR_MAX,
		 "pipeline: view %.63s: networks take one image of each sample; write the pipeline "
		 "without views",
		 images.view_name);
	return -EINVAL;
}

/* Batches are mixed once: on the device, where targets are, too. */
static int data_check_unmixed(const struct feed *feed, char *error)
{
	struct feed_info info = {.size = sizeof(info)};
	if (feed_info(feed, &info) < 0 || info.target_count == 0)
		return 0;
	snprintf(error, DATA_ERROR_MAX,
		 "pipeline: mixup, cutmix and targets are for other programs; leave them out, and "
		 "set "
		 "train.mixup, train.cutmix and train.label_smoothing, which draw the same");
	return -EINVAL;
}

int data_feed(const struct data *data, enum data_part part, uint64_t epoch, uint64_t batch,
	      struct feed **ret_feed, char *error)
{
	const struct recipe_data *recipe = &data->recipe->data;
	static const char *const deferred[] = {FEED_DEFERRED};
	const char *target = recipe->target;
	struct feed_options options;
	bool evaluates = part == DATA_VAL;
	*error = '\0';
	*ret_feed = NULL;
	if (evaluates && data->data_comm->rank >= data->val_samples)
		return 0;
	feed_options_init(&options);
	options.socket = data->socket;
	options.seed = data->recipe->train.seed;
	options.bad = recipe->bad ? FEED_BAD_FAIL : FEED_BAD_SUBSTITUTE;
	options.slots = (uint32_t)recipe->slots;
	options.writable = data->writable;
	options.rank = part == DATA_WHOLE ? 0 : data->data_comm->rank;
	options.world = part == DATA_WHOLE ? 1 : data->data_comm->world;
	options.epoch = epoch;
	options.batch = batch;
	options.batch_size = data_share(data, part);
	if (evaluates)
		options.dataset = recipe->val;
	else if (data->order->chooses)
		options.order = &data->order->feed;
	else
		options.dataset = data->order->datasets[0].path;
	options.pipeline = evaluates ? recipe->val_pipeline : recipe->pipeline;
	options.name = evaluates ? "trainer: evaluation" : "trainer: training";
	options.shuffle = !evaluates && recipe->shuffle;
	options.repeats = evaluates ? 1 : (uint32_t)recipe->repeats;
	options.epoch_end = evaluates ? epoch + 1 : 0;
	options.last = evaluates ? FEED_LAST_SHORT : FEED_LAST_DROP;
	options.reconnect = recipe->reconnect ? FEED_RECONNECT : FEED_RECONNECT_NEVER;
	options.reconnect_timeout_ms = (uint32_t)recipe->reconnect * 1000;
	options.fields = deferred;
	options.field_count = data_defers(data, part);
	options.values = &target;
	options.value_count = *target ? 1 : 0;
	struct data_opening opening = {data,
				       evaluates ? recipe->val : data->order->datasets[0].path,
				       clock_s(CLOCK_MONOTONIC) + OPENING_FIRST_S};
	options.fetching = data_tell_opening;
	options.progress_user = &opening;
	int r = data_open_with_retries(data, &options, ret_feed, error);
	if (r == 0)
		r = data_check_views(*ret_feed, error);
	if (r == 0)
		r = data_check_unmixed(*ret_feed, error);
	if (r == 0)
		r = data_check_unchanged(data, part, *ret_feed, error);
	if (r < 0) {
		feed_close(*ret_feed);
		*ret_feed = NULL;
	}
	return r;
}

int data_next(const struct data *data, struct feed *feed, const volatile int *stop,
	      struct feed_batch *batch, double *wait_seconds, char *error)
{
	uint64_t patience = PATIENCE_S + data->recipe->data.reconnect;
	double start = clock_s(CLOCK_MONOTONIC), now;
	batch->size = sizeof(*batch);
	int r;
	do {
		r = feed_next(feed, POLL_MS, batch);
		now = clock_s(CLOCK_MONOTONIC);
		if (r == -ETIMEDOUT && *stop)
			r = -EINTR;
		const char *text = r == -ETIMEDOUT && data->say ? feed_wait_text(feed) : "";
		if (*text)
			data->say(data->say_context, text);
	} while (r == -ETIMEDOUT && now - start < (double)patience);
	*wait_seconds += now - start;
	if (r == -ETIMEDOUT)
		return data_fail(error, r,
				 "no batch arrived for %llu seconds; check the daemon with "
				 "`loaderctl status`",
				 (unsigned long long)patience);
	if (r == -ECONNRESET)
		return data_fail(error, r, "lost the connection to the daemon%s%s",
				 *feed_error(feed) ? ": " : "", feed_error(feed));
	if (r < 0 && r != -EINTR)
		return data_fail(error, r, "feed: %s",
				 *feed_error(feed) ? feed_error(feed) : strerror(-r));
	return r;
}
