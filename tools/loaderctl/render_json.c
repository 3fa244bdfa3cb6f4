#include "tools/loaderctl/render.h"

#include "format/base/text/json_text.h"
#include "proto/stage.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Jansson's integers are signed: larger values become reals. */
static json_t *number(uint64_t value)
{
	return value <= INT64_MAX ? json_integer((json_int_t)value) : json_real((double)value);
}

static json_t *text(const char *value)
{
	return json_text(value, strlen(value));
}

/* Consumes the reference to root. */
static int print(json_t *root)
{
	if (!root)
		return -ENOMEM;
	int r = json_print(root, stdout, JSON_COMPACT);
	json_decref(root);
	putchar('\n');
	fflush(stdout);
	return r < 0 ? -ENOMEM : 0;
}

static json_t *numbers(size_t count, const uint64_t *values)
{
	json_t *list = json_array();
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, number(values[i]));
	return list;
}

static json_t *choice_json(const Loaderd__Choice *choice)
{
	json_t *o = json_object();
	json_object_set_new(o, "where", text(choice->where));
	json_object_set_new(o, "listed", json_boolean(choice->listed));
	json_object_set_new(o, "weighted", json_boolean(choice->weighted));
	json_object_set_new(o, "class_weighted", json_boolean(choice->class_weighted));
	json_object_set_new(o, "balanced", json_boolean(choice->balanced));
	json_object_set_new(o, "classes_per_batch", number(choice->classes_per_batch));
	return o;
}

static json_t *parts_json(const Loaderd__OrderStatus *order)
{
	json_t *list = json_array();
	for (size_t i = 0; i < order->n_parts; i++) {
		const Loaderd__PartStatus *part = order->parts[i];
		json_t *o = json_object();
		json_object_set_new(o, "dataset", text(part->dataset));
		json_object_set_new(o, "samples", number(part->samples));
		json_object_set_new(o, "chosen", number(part->chosen));
		json_object_set_new(o, "share", number(part->share));
		json_object_set_new(o, "choice",
				    part->choice ? choice_json(part->choice) : json_null());
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *buckets_json(const Loaderd__OrderStatus *order)
{
	json_t *list = json_array();
	for (size_t i = 0; i < order->n_buckets; i++) {
		json_t *o = json_object();
		json_object_set_new(o, "width", number(order->buckets[i]->width));
		json_object_set_new(o, "height", number(order->buckets[i]->height));
		json_object_set_new(o, "batch_size", number(order->buckets[i]->batch_size));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *order_json(const Loaderd__OrderStatus *order)
{
	json_t *o = json_object();
	json_object_set_new(o, "part_count", number(order->part_count));
	json_object_set_new(o, "parts", parts_json(order));
	json_object_set_new(o, "period", number(order->period));
	json_object_set_new(o, "part_batches", json_boolean(order->part_batches));
	json_object_set_new(o, "stage", number(order->stage));
	json_object_set_new(o, "stages", number(order->stages));
	json_object_set_new(o, "epoch_samples", number(order->epoch_samples));
	json_object_set_new(o, "buckets", buckets_json(order));
	json_object_set_new(o, "bucket_samples",
			    numbers(order->n_bucket_samples, order->bucket_samples));
	json_object_set_new(o, "batch_tokens", number(order->batch_tokens));
	json_object_set_new(o, "epoch_batches", number(order->epoch_batches));
	return o;
}

static json_t *opening_json(const Loaderd__Progress *opening)
{
	json_t *o = json_object();
	json_object_set_new(o, "done", number(opening->done));
	json_object_set_new(o, "total", number(opening->total));
	return o;
}

static json_t *feed_json(const Loaderd__FeedStatus *f)
{
	static const enum stage order[] = {
#define STAGE(constant, name, limit, position, ...) [position] = STAGE_##constant,
		STAGES(STAGE)
#undef STAGE
	};
	_Static_assert(sizeof(order) / sizeof(order[0]) == STAGE_COUNT, "places are 0, 1, 2 ...");
	uint64_t stage_ns[STAGE_COUNT] = {0};
	json_t *o = json_object();
	json_object_set_new(o, "feed_id", number(f->feed_id));
	json_object_set_new(o, "name", text(f->name));
	json_object_set_new(o, "pid", number(f->pid));
	json_object_set_new(o, "uid", number(f->uid));
	json_object_set_new(o, "dataset", text(f->dataset));
	json_object_set_new(o, "pipeline", text(f->pipeline));
	json_object_set_new(o, "batch_size", number(f->batch_size));
	json_object_set_new(o, "epoch", number(f->epoch));
	json_object_set_new(o, "batch", number(f->batch));
	json_object_set_new(o, "images", number(f->images));
	json_object_set_new(o, "bad", number(f->bad));
	json_object_set_new(o, "slots", number(f->slots));
	json_object_set_new(o, "slots_ready", number(f->slots_ready));
	json_object_set_new(o, "slots_held", number(f->slots_held));
	json_object_set_new(o, "stall_client_ns", number(f->stall_client_ns));
	json_object_set_new(o, "stall_daemon_ns", number(f->stall_daemon_ns));
	stages_add(stage_ns, f);
	for (unsigned i = 0; i < STAGE_COUNT; i++)
		json_object_set_new(o, stages[order[i]].key, number(stage_ns[order[i]]));
	json_object_set_new(o, "bytes", number(f->bytes));
	json_object_set_new(o, "order", f->order ? order_json(f->order) : json_null());
	json_object_set_new(o, "opening", f->opening ? opening_json(f->opening) : json_null());
	return o;
}

static json_t *bad_json(const Loaderd__Status *status)
{
	json_t *list = json_array();
	for (size_t i = 0; i < status->n_bad; i++) {
		const Loaderd__BadSampleRecord *bad = status->bad[i];
		json_t *o = json_object();
		json_object_set_new(o, "dataset", text(bad->dataset));
		json_object_set_new(o, "index", number(bad->index));
		json_object_set_new(o, "source", text(bad->source));
		json_object_set_new(o, "text", json_sentence(bad->text));
		json_object_set_new(o, "count", number(bad->count));
		json_array_append_new(list, o);
	}
	return list;
}

int render_status_json(const Loaderd__Status *status)
{
	json_t *o = json_object(), *feeds = json_array();
	for (size_t i = 0; i < status->n_feeds; i++)
		json_array_append_new(feeds, feed_json(status->feeds[i]));
	json_object_set_new(o, "version", text(status->version));
	json_object_set_new(o, "pid", number(status->pid));
	json_object_set_new(o, "threads", number(status->threads));
	json_object_set_new(o, "uptime_ns", number(status->uptime_ns));
	json_object_set_new(o, "isa", text(status->isa));
	json_object_set_new(o, "shared_bytes", number(status->shared_bytes));
	json_object_set_new(o, "idle_ns", number(status->idle_ns));
	json_object_set_new(o, "feeds", feeds);
	json_object_set_new(o, "bad", bad_json(status));
	return print(o);
}

int render_bad_json(const Loaderd__Status *status)
{
	return print(bad_json(status));
}

static json_t *texts(size_t count, char *const *values)
{
	json_t *list = json_array();
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, text(values[i]));
	return list;
}

static json_t *json_reals(size_t count, const double *values)
{
	if (count == 0)
		return json_null();
	json_t *list = json_array();
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list,
				      isfinite(values[i]) ? json_real(values[i]) : json_null());
	return list;
}

/* Converts lines of "key=value" to an object. */
static json_t *metadata(const char *lines)
{
	json_t *o = json_object();
	while (*lines != '\0') {
		size_t key = strcspn(lines, "=\n"), line = strcspn(lines, "\n");
		size_t value = key < line ? key + 1 : line;
		json_object_setn_new(o, lines, key, json_text(lines + value, line - value));
		lines += line + (lines[line] != '\0');
	}
	return o;
}

int render_dataset_json(const Loaderd__Dataset *dataset)
{
	char uuid[2 * 16 + 1] = "";
	json_t *o = json_object();
	for (size_t i = 0; i < dataset->uuid.len && i < 16; i++)
		snprintf(uuid + 2 * i, 3, "%02x", dataset->uuid.data[i]);
	json_object_set_new(o, "path", text(dataset->path));
	json_object_set_new(o, "samples", number(dataset->samples));
	json_object_set_new(o, "uuid", text(uuid));
	json_object_set_new(o, "class_names", texts(dataset->n_class_names, dataset->class_names));
	json_object_set_new(o, "mean", json_reals(dataset->n_mean, dataset->mean));
	json_object_set_new(o, "std", json_reals(dataset->n_std, dataset->std));
	json_object_set_new(o, "field_names", texts(dataset->n_field_names, dataset->field_names));
	json_object_set_new(o, "metadata", metadata(dataset->metadata));
	return print(o);
}
