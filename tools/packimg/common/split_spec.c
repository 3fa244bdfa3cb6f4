#include "tools/packimg/common/split_spec.h"

#include "format/base/text/number.h"
#include "tools/packimg/common/file_name.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int split_parse(char *text, struct split_part parts[static SPLIT_PARTS_MAX], uint32_t *ret_count,
		struct packimg_error *error)
{
	uint32_t count = 0;
	double sum = 0;
	char *save, *word;

	for (word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		char *equals = strchr(word, '=');
		struct split_part part = {.name = word};

		if (!equals || equals == word || memchr(word, '/', (size_t)(equals - word)))
			return packimg_fail(error, -EINVAL, "\"%s\" is not NAME=FRACTION", word);
		*equals = 0;
		if (number_double(equals + 1, &part.fraction) ||
		    !(part.fraction > 0 && part.fraction <= 1))
			return packimg_fail(error, -EINVAL, "%s=%s: the fraction is not in (0, 1]",
					    word, equals + 1);
		for (uint32_t i = 0; i < count; i++)
			if (strcmp(parts[i].name, word) == 0)
				return packimg_fail(error, -EINVAL, "%s is named twice", word);
		if (count == SPLIT_PARTS_MAX)
			return packimg_fail(error, -E2BIG, "more than %d parts", SPLIT_PARTS_MAX);
		parts[count++] = part;
		sum += part.fraction;
	}
	if (!count || sum > 1 + 1e-9)
		return packimg_fail(error, -EINVAL,
				    "the fractions add up to %g, which is not in (0, 1]", sum);
	*ret_count = count;
	return 0;
}

char *split_path(const char *output, const char *part)
{
	size_t stem = strlen(output);
	struct buffer path = {0};
	char *name = strdup(part);

	if (stem > 5 && strcmp(output + stem - 5, ".pimg") == 0)
		stem -= 5;
	for (char *p = name; p && *p; p++)
		if (*p == '/')
			*p = '_';
	bool failed = !name || buffer_append(&path, output, stem) || buffer_append(&path, "-", 1) ||
		      file_name_append(&path, name, strlen(name)) ||
		      buffer_append(&path, ".pimg", sizeof(".pimg"));
	free(name);
	if (failed)
		buffer_deinit(&path);
	return (char *)path.data;
}
