#include "tests/fuzz/support/sharded_case.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Parts of the tensors of checkpoint_case.h. count[f]: elements in file f. */
struct part {
	const char *name;
	const char *description; /* in the index */
	unsigned count[2];
	bool slices; /* the files have a slice each */
};
#define CONV "\"shape\":[2,2,1,3],\"layout\":\"channels_last\""
#define FC   "\"shape\":[3,2],\"slices\":2,\"blocks\":3"
static const struct part parts[] = {
	{"conv1.weight", CONV, {5, 7}, false},
	{"bn1.weight", "\"shape\":[2]", {2, 0}, false},
	{"bn1.running_mean", "\"shape\":[2]", {0, 2}, false},
	{"fc.weight", FC, {3, 3}, true},
	{"optimizer.momentum.conv1.weight", CONV, {12, 0}, false},
	{"optimizer.momentum.bn1.weight", "\"shape\":[2]", {1, 1}, false},
	{"optimizer.momentum.fc.weight", FC, {3, 3}, true},
	{"ema.conv1.weight", CONV, {0, 12}, false},
	{"ema.bn1.weight", "\"shape\":[2]", {2, 0}, false},
	{"ema.bn1.running_mean", "\"shape\":[2]", {2, 0}, false},
	{"ema.fc.weight", "\"shape\":[3,2]", {4, 2}, false},
};
enum { PARTS = sizeof(parts) / sizeof(parts[0]), ELEMENTS = 12 };

static const struct safetensors_entry metadata_of_files[] = {
	{"trainer.checkpoint", SHARDED_CASE_ID}, {"trainer.step", SHARDED_CASE_STEP}};

int sharded_case_write(const char *folder)
{
	static const float values[2][ELEMENTS] = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
						  {-1, -2, -3, -4, -5, -6, -7, -8, -9}};
	struct safetensors_tensor tensors[PARTS];
	char path[4096], error[SAFETENSORS_ERROR_MAX];
	for (int file = 0; file < 2; file++) {
		struct safetensors_writer writer = {
			.tensors = tensors, .metadata = metadata_of_files, .metadata_count = 2};
		for (size_t i = 0; i < PARTS; i++)
			if (parts[i].count[file])
				tensors[writer.count++] = (struct safetensors_tensor){
					.name = parts[i].name,
					.type = SAFETENSORS_F32,
					.rank = 1,
					.shape = {parts[i].count[file]},
					.data = values[file],
					.size = parts[i].count[file] * sizeof(float),
				};
		snprintf(path, sizeof(path), "%s/%c.safetensors", folder, 'a' + file);
		int r = safetensors_write(path, &writer, error);
		if (r < 0)
			return r;
	}
	return 0;
}

void sharded_case_print(FILE *file, const struct safetensors_entry *metadata, size_t count)
{
	json_t *object = json_object();
	for (size_t i = 0; i < count; i++)
		json_object_set_new(object, metadata[i].key, json_string(metadata[i].value));
	char *text = json_dumps(object, JSON_COMPACT);
	fprintf(file, "{\"version\":1,\"id\":\"" SHARDED_CASE_ID "\",\"metadata\":%s,\"tensors\":{",
		text);
	for (size_t i = 0; i < PARTS; i++) {
		const struct part *part = &parts[i];
		fprintf(file, "%s\"%s\":{\"dtype\":\"F32\",%s,\"ranges\":[", i ? "," : "",
			part->name, part->description);
		for (int f = 0; f < 2; f++)
			if (part->count[f])
				fprintf(file,
					"%s{\"file\":\"%c.safetensors\",\"slice\":%d,\"first\":%u,"
					"\"count\":%u}",
					f && part->count[0] ? "," : "", 'a' + f,
					part->slices ? f : 0,
					f && !part->slices ? part->count[0] : 0, part->count[f]);
		fprintf(file, "]}");
	}
	fprintf(file, "}}");
	free(text);
	json_decref(object);
}
