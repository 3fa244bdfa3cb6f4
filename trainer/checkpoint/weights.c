#include "trainer/checkpoint/weights.h"
#include "trainer/checkpoint/checkpoint_tensors.h"
#include "trainer/checkpoint/name_map.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES_MAX = 1000000 }; /* limit of model.classes */

/* Limit of mean and std, well above 255 and within the range of floats. */
#define COLOUR_MAX 1e6
#define STD_MIN    1e-6

/* Parses three numbers such as "123.675, 116.28, 103.53". */
static bool read_colour(const char *text, double *ret_value)
{
	for (int c = 0; c < 3; c++) {
		char *end;
		ret_value[c] = strtod(text, &end);
		if (end == text || !(fabs(ret_value[c]) <= COLOUR_MAX) ||
		    *end != (c < 2 ? ',' : '\0'))
			return false;
		text = end + 1;
	}
	return true;
}

static int read_normalisation(const struct safetensors *source, struct weights_metadata *metadata,
			      char *error)
{
	const char *mean = safetensors_metadata(source, "trainer.mean");
	const char *std = safetensors_metadata(source, "trainer.std");
	if (!mean && !std)
		return 0;
	metadata->normalised =
		mean && std && read_colour(mean, metadata->mean) && read_colour(std, metadata->std);
	for (int c = 0; c < 3 && metadata->normalised; c++)
		metadata->normalised = metadata->std[c] >= STD_MIN;
	if (metadata->normalised)
		return 0;
	return checkpoint_fail(error, -EBADMSG,
			       "%s: metadata trainer.mean = \"%.80s\" and trainer.std = \"%.80s\": "
			       "expected three numbers each, deviations above 0",
			       metadata->file, mean ? mean : "", std ? std : "");
}

int weights_class_names(const struct safetensors *source, const char *path,
			struct class_names *ret_names, char *error)
{
	const char *names = safetensors_metadata(source, "trainer.class_names");
	int r = names ? class_names_read(names, ret_names) : 0;
	return r ? checkpoint_fail(error, r == -EINVAL ? -EBADMSG : r,
				   "%s: metadata trainer.class_names: %s", path,
				   r == -EINVAL ? "expected a JSON array of texts" : strerror(-r))
		 : 0;
}

static int weights_read_metadata(const struct safetensors *source, const char *path,
				 struct weights_metadata *metadata, char *error)
{
	metadata->classes = name_map_classes(source);
	if (metadata->classes > CLASSES_MAX)
		return checkpoint_fail(
			error, -EBADMSG,
			"%s: its last layer has %u classes, but at most %d are supported",
			metadata->file, metadata->classes, CLASSES_MAX);
	int r = read_normalisation(source, metadata, error);
	if (r < 0)
		return r;
	r = weights_class_names(source, path, &metadata->class_names, error);
	metadata->named = metadata->class_names.name;
	return r;
}

int weights_read(const char *path, struct weights_metadata *ret_metadata, char *error)
{
	struct safetensors *source;
	struct weights_metadata metadata = {0};
	snprintf(metadata.file, sizeof(metadata.file), "%s", path);
	int r = safetensors_open(path, &source, error);
	if (r < 0)
		return r;
	r = weights_read_metadata(source, path, &metadata, error);
	safetensors_close(source);
	if (r == 0)
		*ret_metadata = metadata;
	return r;
}

void weights_complete_normalisation(struct weights_metadata *metadata,
				    const struct recipe_data *recipe)
{
	if (metadata->normalised || metadata->named || recipe->mean.count != 3 ||
	    recipe->std.count != 3)
		return;
	memcpy(metadata->mean, recipe->mean.value, sizeof(metadata->mean));
	memcpy(metadata->std, recipe->std.value, sizeof(metadata->std));
}

void weights_deinit(struct weights_metadata *metadata)
{
	class_names_deinit(&metadata->class_names);
}
