/*
 * Arbitrary bytes as a source that lists images for packimg: a table, an archive or a WebDataset
 * shard. Everything listed must be valid: labels are classes, and values have the types of their
 * fields. The first byte of an input chooses the kind, the second the options.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/source_files.h"
#include "tools/packimg/convert/class_names.h"
#include "tools/packimg/source/catalog.h"

#include <string.h>
#include <unistd.h>

enum {
	IMAGE_MAX = 1 << 16, /* bytes */
	IMAGES_MAX = 256,
};

static const struct {
	const char *name;
	enum source_kind kind;
	char separator;
} kinds[] = {
	{"a.csv", SOURCE_AUTO, 0},       {"a.tsv", SOURCE_AUTO, 0},
	{"a.lst", SOURCE_MANIFEST, ' '}, {"a.txt", SOURCE_MANIFEST, ';'},
	{"a.tar", SOURCE_WEBDATASET, 0}, {"a.tar", SOURCE_ARCHIVE, 0},
};

static void check(bool holds, const char *what)
{
	if (!holds)
		source_files_die(what);
}

/* Every value must be convertible to the type of its field, or be refused. */
static void check_sample(const struct catalog *catalog, const struct catalog_sample *sample,
			 struct buffer *scratch)
{
	check(sample->label >= -1 && sample->label < (int32_t)catalog->class_count,
	      "a label is no class");
	for (uint32_t i = 0; i < sample->value_count; i++) {
		struct packimg_value value = {0};

		check(sample->values[i].field < catalog->field_names.count, "no such field");
		if (catalog_value(catalog, &sample->values[i], scratch, &value) == 0)
			check(value.present, "a converted value is missing");
	}
}

/* Derives classes from names as packimg convert does, and leaves out what it refuses. */
static bool classify(struct catalog *catalog, enum class_from from)
{
	struct buffer class_name = {0};
	struct packimg_error error;
	struct class_rule rule;
	size_t kept = 0;
	int r = 0;

	class_rule_learn(&rule, from, catalog);
	for (size_t i = 0; i < catalog->count && r >= 0; i++) {
		struct catalog_sample sample = catalog->samples[i];

		r = buffer_reserve(&class_name, strlen(sample.name) + 1);
		if (r == 0 && sample.class == CATALOG_CLASS_OF_NAME)
			r = catalog_classify(
				catalog, &sample,
				class_rule_apply(&rule, sample.name, (char *)class_name.data),
				&error);
		if (r == 0)
			catalog->samples[kept++] = sample;
	}
	catalog->count = kept;
	buffer_deinit(&class_name);
	return r >= 0;
}

static void finish(struct catalog *catalog)
{
	struct packimg_error error;
	struct buffer scratch = {0};

	if (catalog_finish(catalog, NULL, 0, &error) == 0)
		for (size_t i = 0; i < catalog->count; i++)
			check_sample(catalog, &catalog->samples[i], &scratch);
	buffer_deinit(&scratch);
}

static void list(struct catalog *catalog, const char *path, const struct source_options *options)
{
	struct packimg_error error;
	struct source_item item;
	struct source *source;
	int r = source_new(&catalog->blobs, path, options, &source, &error);

	if (r < 0)
		return;
	for (int i = 0; i < IMAGES_MAX; i++) {
		r = source_next(source, &item, &error);
		if (r == SOURCE_END || r < 0)
			break;
		check(item.name != NULL, "an item without a name");
		if (r == 0 && catalog_add(catalog, &item, &error) < 0)
			break;
	}
	source_free(source);
	if (r >= 0 && classify(catalog, options->class_from))
		finish(catalog);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[SOURCE_FILE_PATH];
	struct catalog catalog;

	if (size < 2)
		return 0;
	const size_t kind = data[0] % (sizeof(kinds) / sizeof(*kinds));
	const struct source_options options = {
		.kind = kinds[kind].kind,
		.separator = kinds[kind].separator,
		.labels = (enum label_use)(data[1] % 3),
		.class_from = (enum class_from)(data[1] >> 5 & 3),
		.path_suffix = data[1] & 4 ? ".jpg" : NULL,
		.path_column = data[1] & 8 ? "2" : NULL,
		.label_column = data[1] & 16 ? "note" : NULL,
	};
	source_files_write(path, kinds[kind].name, data + 2, size - 2);
	catalog_init(&catalog);
	catalog.blobs.limits = (struct archive_limits){IMAGE_MAX, 10};
	list(&catalog, path, &options);
	catalog_deinit(&catalog);
	unlink(path);
	return 0;
}
