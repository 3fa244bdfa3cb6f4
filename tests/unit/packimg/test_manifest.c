/* Manifests through the catalogue: which columns mean what, how classes are numbered, what types fields get. */
#include "catalog.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Lists a manifest with this text; returns what catalog_finish() did. Skipped rows are counted. */
static int load(const char *text, const char *const *classes, uint32_t class_count,
		struct catalog *catalog, uint64_t *ret_skipped, struct packimg_error *error)
{
	struct source_options options = {.kind = SOURCE_MANIFEST};
	struct source_item item;
	struct source *source;
	char path[] = "/tmp/packimg-manifest-XXXXXX";
	int fd = mkstemp(path), r;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	catalog_init(catalog);
	*ret_skipped = 0;
	r = source_new(&catalog->store, path, &options, &source, error);
	unlink(path);
	if (r)
		return r;
	while (!(r = source_next(source, &item, error)) || r == SOURCE_SKIP) {
		if (r == SOURCE_SKIP)
			++*ret_skipped;
		else
			assert_int_equal(catalog_add(catalog, &item, error), 0);
	}
	source_free(source);
	return r == SOURCE_END ? catalog_finish(catalog, classes, class_count, error) : r;
}

static void test_names_are_sorted(void **state)
{
	struct packimg_error error;
	struct catalog catalog;
	uint64_t skipped;

	assert_int_equal(load("path,class\nz.jpg,zebra\na.jpg,ant\nb.jpg,\nc.jpg,ant\n", NULL, 0,
			      &catalog, &skipped, &error),
			 0);
	assert_int_equal(catalog.count, 4);
	assert_int_equal(catalog.class_count, 2);
	assert_string_equal(catalog.classes[0], "ant");
	assert_int_equal(catalog.samples[0].label, 1);
	assert_int_equal(catalog.samples[1].label, 0);
	assert_int_equal(catalog.samples[2].label, PACKIMG_LABEL_NONE);
	assert_string_equal(catalog.samples[0].place.path, "z.jpg");
	catalog_deinit(&catalog);
}

static void test_numbers_and_names(void **state)
{
	struct packimg_error error;
	struct catalog catalog;
	uint64_t skipped;

	assert_int_equal(
		load("label,path,class\n2,a.jpg,cat\n0,b.jpg,dog\n2,c.jpg,cat\n-1,d.jpg,\n", NULL,
		     0, &catalog, &skipped, &error),
		0);
	assert_int_equal(catalog.class_count, 3);
	assert_string_equal(catalog.classes[0], "dog");
	assert_string_equal(catalog.classes[1], "1");
	assert_string_equal(catalog.classes[2], "cat");
	assert_int_equal(catalog.samples[0].label, 2);
	assert_int_equal(catalog.samples[3].label, PACKIMG_LABEL_NONE);
	catalog_deinit(&catalog);
	assert_int_equal(load("path,label,class\na.jpg,1,cat\nb.jpg,1,dog\n", NULL, 0, &catalog,
			      &skipped, &error),
			 -EINVAL);
	assert_non_null(strstr(error.text, "contradicts"));
	catalog_deinit(&catalog);
}

static void test_given_classes(void **state)
{
	static const char *const classes[] = {"dog", "cat"};
	struct packimg_error error;
	struct catalog catalog;
	uint64_t skipped;

	assert_int_equal(load("a.jpg,cat\nb.jpg,dog\n", classes, 2, &catalog, &skipped, &error), 0);
	assert_int_equal(catalog.samples[0].label, 1);
	catalog_deinit(&catalog);
	assert_int_equal(load("a.jpg,cow\n", classes, 2, &catalog, &skipped, &error), -EINVAL);
	assert_non_null(strstr(error.text, "cow"));
	catalog_deinit(&catalog);
}

static void test_field_types(void **state)
{
	struct packimg_error error;
	struct packimg_value value;
	struct buffer scratch = {0};
	struct catalog catalog;
	uint64_t skipped;

	assert_int_equal(
		load("file,id,score,note,label\na.jpg,7,1,x,0\nb.jpg,-8,0.5,12,1\nc.jpg,,,,1\n",
		     NULL, 0, &catalog, &skipped, &error),
		0);
	assert_int_equal(catalog.field_names.count, 3);
	assert_int_equal(catalog.fields[0].type, PACKIMG_FIELD_INT64);
	assert_int_equal(catalog.fields[1].type, PACKIMG_FIELD_FLOAT64);
	assert_int_equal(catalog.fields[2].type, PACKIMG_FIELD_TEXT);
	assert_int_equal(catalog.samples[2].value_count, 0);
	assert_int_equal(catalog_value(&catalog, &catalog.samples[1].values[0], &scratch, &value),
			 0);
	assert_true(value.int64 == -8);
	assert_int_equal(catalog_value(&catalog, &catalog.samples[0].values[1], &scratch, &value),
			 0);
	assert_true(value.float64 == 1);
	assert_int_equal(catalog_value(&catalog, &catalog.samples[1].values[2], &scratch, &value),
			 0);
	assert_int_equal(value.size, 2);
	assert_memory_equal(value.bytes, "12", 2);
	buffer_deinit(&scratch);
	catalog_deinit(&catalog);
}

static void test_without_header(void **state)
{
	struct packimg_error error;
	struct catalog catalog;
	uint64_t skipped;

	assert_int_equal(
		load("d/a.jpg\t3\tred\nd/b.jpg\t1\tblue\n", NULL, 0, &catalog, &skipped, &error),
		0);
	assert_int_equal(catalog.count, 2);
	assert_int_equal(catalog.samples[0].label, 3);
	assert_string_equal(catalog.field_names.names[0], "column3");
	catalog_deinit(&catalog);
	assert_int_equal(load("d/a.jpg\nd/b.jpg", NULL, 0, &catalog, &skipped, &error), 0);
	assert_int_equal(catalog.count, 2);
	assert_int_equal(catalog.samples[0].label, PACKIMG_LABEL_NONE);
	catalog_deinit(&catalog);
	assert_int_equal(load("what,is,this\n1,2,3\n", NULL, 0, &catalog, &skipped, &error),
			 -EINVAL);
	catalog_deinit(&catalog);
}

static void test_bad_rows(void **state)
{
	struct packimg_error error;
	struct catalog catalog;
	uint64_t skipped;

	assert_int_equal(load("path,label\na.jpg,99999999\nb.jpg,1\n,2\nc.jpg,1,extra\n", NULL, 0,
			      &catalog, &skipped, &error),
			 0);
	assert_int_equal(catalog.count, 1);
	assert_int_equal(skipped, 3);
	catalog_deinit(&catalog);
	assert_int_equal(load("path,label\n\"a.jpg,1\n", NULL, 0, &catalog, &skipped, &error),
			 -EINVAL);
	catalog_deinit(&catalog);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_are_sorted), cmocka_unit_test(test_numbers_and_names),
		cmocka_unit_test(test_given_classes),	 cmocka_unit_test(test_field_types),
		cmocka_unit_test(test_without_header),	 cmocka_unit_test(test_bad_rows),
	};

	return cmocka_run_group_tests_name("packimg manifest", tests, NULL, NULL);
}
