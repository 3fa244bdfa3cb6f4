/* Fixture of the tests of filters: the dataset of where_dataset.h, open with and without a mapping.
 */
#pragma once

#include "format/where.h"
#include "tests/unit/format/fixture.h"
#include "tests/unit/format/where_dataset.h"

extern struct packimg *mapped, *unmapped;

/* cmocka group functions. */
int where_setup(void **state);
int where_teardown(void **state);

/* Opens the files of a dataset again, without a mapping. */
struct packimg *open_unmapped(const struct packimg *dataset);
/* Parses a filter, which must be right. */
struct where *parse(const char *filter, const struct packimg *dataset);
/* Compares the samples that match, mapped and unmapped. expected has a digit for each sample. */
void check_matches(const char *filter, const char *expected);
/* Checks that a filter is refused. */
void check_error(const struct packimg *dataset, const char *filter, int position, const char *text);
