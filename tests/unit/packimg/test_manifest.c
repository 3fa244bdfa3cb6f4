/*
 * Manifests as read by the catalogue: the meaning of columns, the numbering of classes, and the
 * types of fields.
 */
#include "tests/test.h"
#include "tools/packimg/source/catalog.h"

#include <fcntl.h>

/*
 * Lists a manifest with this text and returns the result of catalog_finish(). Counts the skipped
 * rows.
 */
static int load_labels(const char *text, enum label_use labels, const char *const *classes,
		       uint32_t class_count, struct catalog *catalog, uint64_t *ret_skipped,
		       struct packimg_error *error)
{
	struct source_options options = {.kind = SOURCE_MANIFEST, .labels = labels};
	struct source_item item;
	struct source *source;
	/* in an empty folder, because the catalogue searches for images below the table's folder */
	char folder[] = "/tmp/packimg-manifest-XXXXXX", path[sizeof(folder) + 8];

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/t.csv", folder);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	catalog_init(catalog);
	*ret_skipped = 0;
	int r = source_new(&catalog->blobs, path, &options, &source, error);
	unlink(path);
	rmdir(folder);
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

static int load(const char *text, const char *const *classes, uint32_t class_count,
		struct catalog *catalog, uint64_t *ret_skipped, struct packimg_error *error)
{
	return load_labels(text, LABELS_AUTO, classes, class_count, catalog, ret_skipped, error);
}

TEST(names_are_sorted)
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
	assert_string_equal(catalog.samples[0].location.path, "z.jpg");
	catalog_deinit(&catalog);
}

TEST(numbers_and_names)
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

TEST(given_classes)
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

TEST(field_types)
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

TEST(without_header)
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

TEST(separators)
{
	static const struct {
		/* name of the first image and of its first field */
		const char *text, *first, *field;
	} tables[] = {
		{"path;class;note\na.jpg;cat;1,5\n", "a.jpg", "note"},
		{"note;path;class\n\"x;\ny\";a.jpg;cat\n", "a.jpg", "note"},
		{"path\tclass, or so\tnote;s\na.jpg\tcat\t1\n", "a.jpg", "class, or so"},
		{"path,class;es\na.jpg,cat\n", "a.jpg", "class;es"},
		{"a.jpg;cat;0,5\nb.jpg;dog;1\n", "a.jpg", "column3"},
		{"d/a,b.jpg;cat;1\n", "d/a,b.jpg", "column3"},
		{"d/a;b.jpg,cat,1\n", "d/a;b.jpg", "column3"},
		{"d/a, b.jpg\n", "d/a, b.jpg", NULL},
		{"d/a;b.jpg\n", "d/a;b.jpg", NULL},
	};

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		struct packimg_error error;
		struct catalog catalog;
		uint64_t skipped;

		assert_int_equal(load(tables[i].text, NULL, 0, &catalog, &skipped, &error), 0);
		assert_int_equal(skipped, 0);
		assert_string_equal(catalog.samples[0].name, tables[i].first);
		assert_int_equal(catalog.field_names.count > 0, tables[i].field != NULL);
		if (tables[i].field)
			assert_string_equal(catalog.field_names.names[0], tables[i].field);
		catalog_deinit(&catalog);
	}
}

TEST(paths_of_windows)
{
	struct packimg_error error;
	struct catalog catalog;
	uint64_t skipped;
	char path[] = "/tmp/packimg\\XXXXXX", table[256], name[sizeof(path)];
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	snprintf(name, sizeof(name), "../%s", path + 5); /* relative to the table's folder */
	snprintf(table, sizeof(table),
		 "path,class\ncat\\one\\a.jpg,cat\n%s,cat\nC:\\data\\b.jpg,cat\n"
		 "d:/data/b.jpg,cat\n..\\c.jpg,cat\n",
		 name);
	assert_int_equal(load(table, NULL, 0, &catalog, &skipped, &error), 0);
	unlink(path);
	assert_int_equal(catalog.count, 3);
	assert_int_equal(skipped, 2);
	assert_non_null(strstr(error.text, "line 5: a Windows path with a drive"));
	assert_string_equal(catalog.samples[0].name, "cat/one/a.jpg");
	assert_string_equal(catalog.samples[0].location.path, "cat/one/a.jpg");
	assert_string_equal(catalog.samples[1].name, name);
	assert_string_equal(catalog.samples[2].name, "../c.jpg");
	catalog_deinit(&catalog);
}

TEST(labels_are_classes_or_a_field)
{
	static const struct {
		const char *text;
		enum label_use labels;
		uint32_t classes;
		int32_t label;     /* label of the last image */
		const char *field; /* name of the first field */
		enum packimg_field_type type;
		bool told;
	} tables[] = {
		{"path,label\na.jpg,1\nb.jpg,0.5\n", LABELS_AUTO, 0, -1, "label",
		 PACKIMG_FIELD_FLOAT64, true},
		{"path,target\na.jpg,-1e3\nb.jpg,.5\nc.jpg,\n", LABELS_AUTO, 0, -1, "target",
		 PACKIMG_FIELD_FLOAT64, true},
		{"a.jpg,0.25\nb.jpg,3\n", LABELS_AUTO, 0, -1, "label", PACKIMG_FIELD_FLOAT64, true},
		{"path,label\na.jpg,1\nb.jpg,0.5\n", LABELS_CLASSES, 2, 0, NULL, 0, false},
		{"path,label\na.jpg,1\nb.jpg,2\n", LABELS_FIELD, 0, -1, "label",
		 PACKIMG_FIELD_INT64, true},
		{"path,label\na.jpg,1\nb.jpg,cat\n", LABELS_FIELD, 0, -1, "label",
		 PACKIMG_FIELD_TEXT, true},
		/*
		 * integers as written by programs that store a column with missing values as floats
		 */
		{"path,label\na.jpg,0.0\nb.jpg,nan\nc.jpg,2.0\n", LABELS_AUTO, 3, 2, NULL, 0,
		 false},
		{"path,label\na.jpg,0.5\nb.jpg,n/a\n", LABELS_AUTO, 0, -1, "label",
		 PACKIMG_FIELD_FLOAT64, true},
		{"path,label\na.jpg,0.5\nb.jpg,what\n", LABELS_AUTO, 2, 1, NULL, 0, false},
		/* the same words mean "no label" among class names and among numbers */
		{"path,label\na.jpg,cat\nb.jpg,NaN\nc.jpg,None\nd.jpg,null\ne.jpg,\nf.jpg\n",
		 LABELS_AUTO, 1, -1, NULL, 0, false},
		{"path,label\na.jpg,3\nb.jpg,None\nc.jpg,null\nd.jpg,<NA>\n", LABELS_AUTO, 4, -1,
		 NULL, 0, false},
		{"path,label\na.jpg,cat\nb.jpg,none\n", LABELS_AUTO, 2, 1, NULL, 0, false},
		{"path,label,n\na.jpg,1,2\nb.jpg,0,NA\n", LABELS_AUTO, 2, 0, "n",
		 PACKIMG_FIELD_INT64, false},
		/* spaces around cells, CR line ends, formats of other programs */
		{"path, label\na.jpg, 1\nb.jpg ,\t0\n", LABELS_AUTO, 2, 0, NULL, 0, false},
		{"\"path\", \"label\" \n\"a.jpg\" , \"1\"\n\"b.jpg\",\"0\"\n", LABELS_AUTO, 2, 0,
		 NULL, 0, false},
		{"path,label\ra.jpg,1\rb.jpg,0\r", LABELS_AUTO, 2, 0, NULL, 0, false},
		{"a.jpg 1\nb.jpg   0 \n", LABELS_AUTO, 2, 0, NULL, 0, false},
		{"0\t1.0\ta.jpg\n1\t0.0\tb.jpg\n", LABELS_AUTO, 2, 0, "column1",
		 PACKIMG_FIELD_INT64, false},
		{"1,a.jpg\n0,b.jpg\n", LABELS_AUTO, 2, 0, NULL, 0, false},
		{"path;label\na.jpg;0,5\nb.jpg;-1,25\n", LABELS_AUTO, 0, -1, "label",
		 PACKIMG_FIELD_FLOAT64, true},
		{"path;n;label\na.jpg;0,5;1\nb.jpg;2;0\n", LABELS_AUTO, 2, 0, "n",
		 PACKIMG_FIELD_FLOAT64, false},
		{"path;n;label\na.jpg;0,5;1\nb.jpg;x;0\n", LABELS_AUTO, 2, 0, "n",
		 PACKIMG_FIELD_TEXT, false},
		{"path;n;label\na.jpg;1,234,567;1\nb.jpg;2;0\n", LABELS_AUTO, 2, 0, "n",
		 PACKIMG_FIELD_TEXT, false},
		{"path,label,class\na.jpg,red,cat\nb.jpg,,dog\n", LABELS_AUTO, 2, 1, "label",
		 PACKIMG_FIELD_TEXT, false},
		{"path,label,class\na.jpg,.5,cat\nb.jpg,1,dog\n", LABELS_AUTO, 2, 1, "label",
		 PACKIMG_FIELD_FLOAT64, false},
	};

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		struct packimg_error error;
		struct catalog catalog;
		uint64_t skipped;

		assert_int_equal(load_labels(tables[i].text, tables[i].labels, NULL, 0, &catalog,
					     &skipped, &error),
				 0);
		assert_int_equal(skipped, 0);
		assert_int_equal(catalog.class_count, tables[i].classes);
		assert_int_equal(catalog.samples[catalog.count - 1].label, tables[i].label);
		assert_int_equal(catalog.field_names.count > 0, tables[i].field != NULL);
		if (tables[i].field) {
			assert_string_equal(catalog.field_names.names[0], tables[i].field);
			assert_int_equal(catalog.fields[0].type, tables[i].type);
		}
		assert_int_equal(catalog.label_field != NULL, tables[i].told);
		catalog_deinit(&catalog);
	}
}

/* A text field keeps the text of the cell; in a number, a decimal comma becomes a point. */
TEST(commas_in_numbers)
{
	struct packimg_error error;
	struct catalog catalog;
	uint64_t skipped;

	assert_int_equal(load("path;n;t\na.jpg;0,5;0,5\nb.jpg;2;1,5 m\n", NULL, 0, &catalog,
			      &skipped, &error),
			 0);
	assert_string_equal(catalog.samples[0].values[0].text, "0.5");
	assert_string_equal(catalog.samples[0].values[1].text, "0,5");
	assert_string_equal(catalog.samples[1].values[1].text, "1,5 m");
	catalog_deinit(&catalog);
	assert_int_equal(load("path\tn\na.jpg\t0,5\n", NULL, 0, &catalog, &skipped, &error), 0);
	assert_string_equal(catalog.samples[0].values[0].text, "0,5");
	catalog_deinit(&catalog);
}

TEST(bad_rows)
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
