/* Parsing of numbers: rejects text that only begins like a number. Numbers as text read back. */
#include "format/base/text/number.h"
#include "tests/test.h"

#include <math.h>

TEST(whole_texts)
{
	uint64_t u;
	int64_t i;
	double d;

	assert_int_equal(number_u64("12", 0, 100, &u), 0);
	assert_int_equal(u, 12);
	assert_int_equal(number_u64("101", 0, 100, &u), -EINVAL);
	assert_int_equal(number_u64("-1", 0, 100, &u), -EINVAL);
	assert_int_equal(number_u64(" 1", 0, 100, &u), -EINVAL);
	assert_int_equal(number_u64("1x", 0, 100, &u), -EINVAL);
	assert_int_equal(number_u64("", 0, 100, &u), -EINVAL);
	assert_int_equal(number_i64("-9223372036854775808", &i), 0);
	assert_true(i == INT64_MIN);
	assert_int_equal(number_i64("9223372036854775808", &i), -EINVAL);
	assert_int_equal(number_double("1.5e3", &d), 0);
	assert_true(d == 1500);
	assert_int_equal(number_double("0x10", &d), -EINVAL);
	assert_int_equal(number_double("1.5 ", &d), -EINVAL);
	assert_int_equal(number_double("nan", &d), 0);
	assert_true(isnan(d));
	assert_int_equal(number_double("name", &d), -EINVAL);
	assert_int_equal(number_bytes("512M", &u), 0);
	assert_int_equal(u, 512 << 20);
	assert_int_equal(number_bytes("1.5KiB", &u), 0);
	assert_int_equal(u, 1536);
	assert_int_equal(number_bytes("10X", &u), -EINVAL);
	assert_int_equal(number_bytes("99999999T", &u), -EINVAL);
}

TEST(beginnings)
{
	const char *end;
	uint64_t u = 7;

	assert_int_equal(number_begin("12-15", 10, &u, &end), 0);
	assert_int_equal(u, 12);
	assert_string_equal(end, "-15");
	assert_int_equal(number_begin("750", 8, &u, &end), 0);
	assert_int_equal(u, 0750);
	u = 7;
	assert_int_equal(number_begin("-12", 10, &u, &end), -EINVAL);
	assert_int_equal(number_begin("+12", 10, &u, &end), -EINVAL);
	assert_int_equal(number_begin(" 12", 10, &u, &end), -EINVAL);
	assert_int_equal(number_begin("18446744073709551616", 10, &u, &end), -EINVAL);
	assert_int_equal(u, 7);
}

TEST(units)
{
	static const struct {
		const char *text, *rest;
		unsigned bits;
	} cases[] = {
		{"K", "", 10}, {"m", "", 20}, {"GiB", "B", 30}, {"TB", "B", 40},
		{"P", "P", 0}, {"", "", 0},   {"iB", "iB", 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *at = cases[i].text;
		assert_int_equal(number_unit(&at), cases[i].bits);
		assert_string_equal(at, cases[i].rest);
	}
}

TEST(shortest_texts)
{
	static const struct {
		double number;
		const char *text, *as_float;
	} cases[] = {
		{0, "0", "0"},
		{0.1, "0.1", "0.1"},
		{-2.5, "-2.5", "-2.5"},
		{1.0 / 3, "0.3333333333333333", "0.33333334"},
		{0.1 + 0.2, "0.30000000000000004", "0.3"},
		{1e22, "1e+22", "1e+22"},
		{123456789, "123456789", "1.2345679e+08"},
		{0x1p-1074, "4.94066e-324", "0"},
		{INFINITY, "inf", "inf"},
	};
	char text[NUMBER_SHORTEST];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_string_equal(number_shortest(cases[i].number, text), cases[i].text);
		assert_string_equal(number_shortest_float((float)cases[i].number, text),
				    cases[i].as_float);
	}
	assert_string_equal(number_shortest(NAN, text), "nan");
}
