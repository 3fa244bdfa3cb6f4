#include "format/traits.h"

#include "format/error.h"
#include "format/header.h"

#include <errno.h>
#include <inttypes.h>

static int trait_read(struct packimg_field *field, const struct pimg_trait *trait)
{
	bool text = trait->kind == PIMG_VALUE_TEXT;

	if (trait->reserved_0 || (text && field->type != PACKIMG_FIELD_BYTES) ||
	    (trait->longest > 0 && field->type < PACKIMG_FIELD_BYTES))
		return -EBADMSG;
	field->longest = trait->longest;
	if (text)
		field->type = PACKIMG_FIELD_TEXT;
	return 0;
}

int traits_read(struct packimg *dataset, int fd, const char *name, const struct pimg_header *header,
		struct packimg_error *error)
{
	const struct pimg_section *section = header_section(header, PIMG_SECTION_TRAITS);
	struct pimg_trait traits[PACKIMG_FIELDS_MAX + 1];
	uint32_t count = header->field_count;

	dataset->source_longest = PACKIMG_LONGEST_UNKNOWN;
	if (!section)
		return 0;
	int r = header_pread(fd, name, traits, (count + 1) * sizeof(*traits), section->offset,
			     error);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < count; i++)
		if (trait_read(&dataset->fields[i], &traits[i]) < 0)
			return packimg_damaged(error,
					       "%s: traits of field %.100s do not fit its type",
					       name, dataset->fields[i].name);
	if (traits[count].reserved_0 || traits[count].longest > PACKIMG_SOURCE_MAX)
		return packimg_damaged(error, "%s: traits of the sources are damaged", name);
	dataset->source_longest = traits[count].longest;
	return 0;
}

static int check_longest(const struct packimg *dataset, const char *what, const char *name,
			 uint64_t found, uint64_t recorded, struct packimg_error *error)
{
	if (recorded == PACKIMG_LONGEST_UNKNOWN || found == recorded)
		return 0;
	return packimg_damaged(error,
			       "%s: %s%.100s: the longest is recorded as %" PRIu64
			       " bytes, and has %" PRIu64 "; convert the file again",
			       dataset->shards[0].path, what, name, recorded, found);
}

int traits_check(const struct packimg *dataset, const struct traits_found *found,
		 struct packimg_error *error)
{
	int r = check_longest(dataset, "source names", "", found->source_longest,
			      dataset->source_longest, error);

	for (uint32_t i = 0; r == 0 && i < dataset->field_count; i++)
		if (dataset->fields[i].type >= PACKIMG_FIELD_BYTES)
			r = check_longest(dataset, "values of field ", dataset->fields[i].name,
					  found->longest[i], dataset->fields[i].longest, error);
	return r;
}
