/* Quantiles, medians and spread of loaderbench's measurements. */
#include "bench/measure/histogram.h"
#include "bench/report/plot.h"
#include "bench/report/report.h"
#include "tests/test.h"

#include <math.h>

static void assert_near(double value, double wanted, double tolerance)
{
	if (fabs(value - wanted) > tolerance * fabs(wanted))
		fail_msg("%g is not within %g of %g", value, tolerance, wanted);
}

TEST(quantiles)
{
	struct histogram *histogram = calloc(1, sizeof(*histogram)),
			 *other = calloc(1, sizeof(*other));

	assert_true(histogram_quantile(histogram, 0.5) == 0);
	for (uint64_t i = 1; i <= 10000; i++)
		histogram_add(i % 2 ? histogram : other, i * 1000);
	histogram_merge(histogram, other);
	assert_int_equal(histogram->total, 10000);
	assert_near(histogram_quantile(histogram, 0.5), 5e6, 0.012);
	assert_near(histogram_quantile(histogram, 0.99), 9.9e6, 0.012);
	assert_near(histogram_quantile(histogram, 1), 1e7, 0.012);
	/* Also counts zero and values beyond the scale. */
	histogram_add(histogram, UINT64_MAX);
	histogram_add(histogram, 0);
	assert_int_equal(histogram->total, 10002);
	assert_true(histogram_quantile(histogram, 1) > 1e13);
	free(histogram);
	free(other);
}

TEST(medians)
{
	struct measurement rounds[] = {
		{.images_per_s = 90, .cpu_us = 3, .threads = 2},
		{.images_per_s = 120, .cpu_us = 1, .threads = 2},
		{.images_per_s = 100, .cpu_us = 5, .threads = 2},
		{.images_per_s = 104, .cpu_us = 2, .threads = 2},
	};
	struct row row = {0};

	report_summarise(rounds, 3, &row);
	assert_near(row.median.images_per_s, 100, 1e-12);
	assert_near(row.median.cpu_us, 3, 1e-12);
	assert_near(row.images_per_s_min, 90, 1e-12);
	assert_near(row.images_per_s_max, 120, 1e-12);
	assert_near(row.spread, 0.3, 1e-12);
	assert_int_equal(row.rounds, 3);
	assert_int_equal(row.median.threads, 2);
	report_summarise(rounds, 4, &row);
	assert_near(row.median.images_per_s, 102, 1e-12);
	assert_near(row.median.cpu_us, 2.5, 1e-12);
}

static char *written(const struct report *report, int (*write)(const struct report *, FILE *))
{
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	assert_non_null(file);
	assert_int_equal(write(report, file), 0);
	fclose(file);
	return text;
}

static int write_table(const struct report *report, FILE *out)
{
	report_table(report, out);
	return 0;
}

/* A failed point is listed in every output format, but not plotted. */
TEST(failed_point)
{
	struct settings settings = {.window_s = 1};
	struct row rows[] = {
		{.point = {.dataset = "a<b>.pimg",
			   .pipeline = "hflip",
			   .batch_size = 8,
			   .clients = 1}},
		{.point = {.dataset = "a<b>.pimg",
			   .pipeline = "hflip",
			   .batch_size = 16,
			   .clients = 1},
		 .error = -2,
		 .text = "no such \"file\""},
		{.point = {.dataset = "a<b>.pimg",
			   .pipeline = "hflip",
			   .batch_size = 32,
			   .clients = 1}},
	};
	struct report report = {
		.settings = &settings, .pipeline = "hflip", .rows = rows, .count = 3};
	struct measurement m = {.images_per_s = 1234, .threads = 2, .isa = "c"};

	report_summarise(&m, 1, &rows[0]);
	report_summarise(&m, 1, &rows[2]);
	char *table = written(&report, write_table), *json = written(&report, report_json);
	char *plot = written(&report, plot_write);

	assert_non_null(strstr(table, "1234"));
	assert_non_null(strstr(table, "no such \"file\""));
	assert_non_null(strstr(json, "\"error\": \"no such \\\"file\\\"\""));
	assert_non_null(strstr(plot, ">a&lt;b&gt;.pimg, hflip<"));
	assert_non_null(
		strstr(plot, "medians of 1 round each, bars from the slowest to the fastest"));
	assert_non_null(strstr(plot, "<circle"));
	assert_null(strstr(plot, "nan"));
	assert_null(strstr(plot, "<b>"));
	free(table);
	free(json);
	free(plot);
}
