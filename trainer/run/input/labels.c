#include "trainer/run/input/labels.h"

#include "proto/client/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void labels_close_all(const int *fds, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		close(fds[i]);
}

static int labels_copy_fds(const struct packimg *mapped, int *fds)
{
	for (uint32_t i = 0; i < packimg_shard_count(mapped); i++) {
		struct packimg_shard shard;
		int r = packimg_shard(mapped, i, &shard);
		fds[i] = r < 0 ? -1 : fcntl(shard.fd, F_DUPFD_CLOEXEC, 0);
		if (fds[i] < 0) {
			r = r < 0 ? r : -errno;
			labels_close_all(fds, i);
			return r;
		}
	}
	return 0;
}

/* The fetcher has the index, and fetches no sample for it. */
static int labels_open_fetched(const char *address, struct packimg **ret_dataset,
			       struct packimg_error *error)
{
	const struct fetch_options facts = {.facts = true};
	struct fetched *fetched;
	char text[FEED_ERROR_MAX];
	int r = fetch_open(address, &facts, &fetched, text);
	if (r < 0) {
		sentence_write(error->text, sizeof(error->text), "%s", text);
		return r;
	}
	r = packimg_open_unmapped(address, fetched->files, fetched->file_count, ret_dataset, error);
	for (uint32_t i = 0; r == 0 && i < fetched->file_count; i++)
		fetched->files[i] = -1; /* the dataset has them */
	fetch_close(fetched);
	return r;
}

int labels_open(const char *path, struct packimg **ret_dataset, struct packimg_error *error)
{
	struct packimg *mapped;
	if (text_is_address(path))
		return labels_open_fetched(path, ret_dataset, error);
	int r = packimg_open(path, &mapped, error);
	if (r < 0)
		return r;
	uint32_t count = packimg_shard_count(mapped);
	int *fds = calloc(count, sizeof(*fds));
	r = fds ? labels_copy_fds(mapped, fds) : -ENOMEM;
	packimg_close(mapped);
	if (r == 0) {
		r = packimg_open_unmapped(path, fds, count, ret_dataset, error);
		if (r < 0)
			labels_close_all(fds, count);
	}
	free(fds);
	return r;
}

void labels_count(const struct packimg *dataset, uint32_t classes, uint64_t *counts,
		  struct labels *ret_labels)
{
	struct packimg_sample sample;
	*ret_labels = (struct labels){.samples = packimg_count(dataset)};
	for (uint64_t i = 0; i < ret_labels->samples; i++) {
		if (packimg_sample(dataset, i, &sample) < 0)
			continue;
		bool labelled = sample.label >= 0, known = sample.label < (int64_t)classes;
		ret_labels->unlabelled += !labelled;
		ret_labels->out_of_range += !known;
		if (labelled && known && counts)
			counts[sample.label]++;
	}
}

int labels_read(struct run_context *ctx, const char *path, const struct uuid *found,
		uint32_t classes, uint64_t *counts, struct labels *ret_labels)
{
	struct packimg_error problem = {{0}};
	struct packimg *dataset;
	int r = labels_open(path, &dataset, &problem);
	if (r < 0)
		return run_fail(ctx, r, "%s", *problem.text ? problem.text : strerror(-r));
	if (memcmp(packimg_uuid(dataset), found, sizeof(*found)) == 0)
		labels_count(dataset, classes, counts, ret_labels);
	else
		r = run_fail(ctx, -ESTALE,
			     "it is not the dataset that the daemon opened: start again");
	packimg_close(dataset);
	return r;
}

/* ---- reporting ---- */

static int labels_report(struct run_context *ctx, const char *key, const char *path,
			 const struct uuid *found, uint32_t classes, const char *consequence)
{
	struct labels labels;
	if (labels_read(ctx, path, found, classes, NULL, &labels) < 0) {
		/* not an error: training uses the labels that the daemon delivers */
		progress_line(&ctx->progress, "%s = %s: cannot count labels: %s", key, path,
			      ctx->error);
		run_clear_error(ctx);
		return 0;
	}
	uint64_t missing = labels.unlabelled + labels.out_of_range;
	const char *which = labels.out_of_range ? " of the model's classes" : "";
	if (missing && missing == labels.samples)
		return run_fail(ctx, -EINVAL,
				"%s = %.600s: no sample has a label%s: pack it again, with labels",
				key, path, which);
	if (missing)
		progress_line(&ctx->progress,
			      "%s = %s: %llu of %llu samples have no label%s: %s; packimg info "
			      "counts them",
			      key, path, (unsigned long long)missing,
			      (unsigned long long)labels.samples, which, consequence);
	return 0;
}

int labels_report_missing(struct run_context *ctx, const struct data *data)
{
	const struct recipe_data *recipe = &ctx->recipe->data;
	bool drawn_by_class = recipe->class_sampling.count || recipe->class_sampling.word;
	for (uint32_t i = 0; !ctx->options.evaluate && i < data->order->count; i++) {
		const struct train_dataset *dataset = &data->order->datasets[i];
		int r = labels_report(
			ctx, "data.train", dataset->path, &dataset->uuid, data->classes,
			drawn_by_class
				? "data.class_sampling never draws them"
				: "they are part of batches, but do not contribute to the loss");
		if (r < 0)
			return r;
	}
	if (!*recipe->val)
		return 0;
	return labels_report(ctx, "data.val", recipe->val, &data->val_uuid, data->classes,
			     "evaluation ignores them");
}
