#include "tests/kernels/kernel_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct kernel_kind *kind;

/* The running test, for messages. */
static struct {
	const struct kernel_case *k;
	unsigned variant, row;
} running;

double kernels_uniform(uint64_t seed, uint64_t counter)
{
	uint64_t z = seed * 0x2545f4914f6cdd1d + (counter + 1) * 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

void kernels_fail(const char *format, ...)
{
	const struct kernel_case *k = running.k;
	char text[256];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	if (k)
		fail_msg("%s %s, %s, case %u, %u x %u x %u x %u: %s", k->kernel,
			 k->name ? k->name : "", kind->variants[running.variant], running.row, k->n,
			 k->h, k->w, k->c, text);
	else
		fail_msg("%s", text);
	abort();
}

static void check_variant(const struct kernel_case *k, unsigned variant, unsigned row)
{
	running.k = k;
	running.variant = variant;
	running.row = row;
	kind->begin(k, variant);
	k->check(k, variant);
	kind->end();
	running.k = NULL;
}

static void check_shape(const struct kernel_test *test, const struct kernel_shape *shape)
{
	struct kernel_case k = {
		.kernel = test->name,
		.check = test->check,
		.n = shape->n,
		.h = shape->h,
		.w = shape->w,
		.c = shape->c,
		.more = {shape->more[0], shape->more[1], shape->more[2]},
	};

	for (unsigned i = 0; i < test->settings_count; i++) {
		k.settings = (const char *)test->settings + i * test->settings_size;
		for (unsigned variant = 0; variant < kind->variant_count; variant++)
			check_variant(&k, variant, i);
	}
}

static void run_row(void **state)
{
	const struct kernel_test *test = *state;

	if (test->once) {
		kind->begin_round(0);
		kind->begin(NULL, 0);
		test->once();
		kind->end();
		return;
	}
	for (unsigned round = 0; round < kind->rounds * (test->times ? test->times : 1); round++) {
		kind->begin_round(round % kind->rounds);
		for (unsigned i = 0; i < test->shape_count; i++)
			check_shape(test, &test->shapes[i]);
		for (uint32_t w = 1; w <= test->widths; w++)
			check_shape(test, &(struct kernel_shape){1, 1, w, 1});
	}
}

struct timed_cases {
	const struct kernel_case *cases;
	unsigned count;
};

static void run_timed_cases(void **state)
{
	const struct timed_cases *timed = *state;

	for (unsigned i = 0; i < timed->count; i++)
		for (unsigned variant = 0; variant < kind->variant_count; variant++) {
			struct kernel_case k = timed->cases[i];

			kind->begin_round((i + variant) % kind->rounds);
			kind->shrink(&k);
			check_variant(&k, variant, 0);
		}
}

bool kernels_selected(const struct kernel_case *k, const char *text)
{
	return strstr(k->kernel, text) || (k->name && strstr(k->name, text));
}

static int bench(int argc, char **argv, const struct kernel_case *timed, unsigned count)
{
	bool known = argc < 3;

	for (unsigned i = 0; i < kind->variant_count && !known; i++)
		known = strcmp(argv[2], kind->variants[i]) == 0;
	for (unsigned i = 0; i < count && !known; i++)
		known = timed[i].implementation && strcmp(argv[2], timed[i].implementation) == 0;
	if (strcmp(argv[1], "--bench") != 0 || argc > 4 || !known) {
		fprintf(stderr, "usage: %s [--bench [VARIANT [TEXT]]], VARIANT being one of",
			argv[0]);
		for (unsigned i = 0; i < kind->variant_count; i++)
			fprintf(stderr, " %s", kind->variants[i]);
		fprintf(stderr, "\n");
		return 2;
	}
	return kind->bench(timed, count, argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : "");
}

int kernels_main(int argc, char **argv, const struct kernel_kind *own_kind,
		 const struct kernel_test *tests, unsigned test_count,
		 const struct kernel_case *timed, unsigned timed_count)
{
	struct timed_cases cases = {timed, timed_count};

	kind = own_kind;
	if (argc > 1)
		return bench(argc, argv, timed, timed_count);
	struct CMUnitTest *rows = calloc(test_count + 1, sizeof(*rows));
	if (!rows)
		return 1;
	for (unsigned i = 0; i < test_count; i++)
		rows[i] = (struct CMUnitTest){.name = tests[i].name,
					      .test_func = run_row,
					      .initial_state = (void *)(uintptr_t)&tests[i]};
	rows[test_count] = (struct CMUnitTest){
		.name = "timed cases", .test_func = run_timed_cases, .initial_state = &cases};
	int r = _cmocka_run_group_tests(argv[0], rows, test_count + (kind->shrink != NULL),
					kind->setup, kind->teardown);
	free(rows);
	return r;
}
