/* The portable functions against the C library's, which is right to about a unit in the last place.
 */
#include "format/base/portable_math.h"

#include "tests/test.h"

#include <math.h>

static void assert_near(double got, double expected)
{
	if (!(fabs(got - expected) <= 1e-14))
		fail_msg("%.17g instead of %.17g", got, expected);
}

TEST(angles_of_points)
{
	static const double sizes[] = {1e-300, 1e-9, 1, 3e5, 1e300};

	for (int i = 0; i <= 4000; i++) {
		double angle = (i - 2000) * 0x1.921fb54442d18p1 / 2000;

		for (unsigned k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
			double x = sizes[k] * cos(angle), y = sizes[k] * sin(angle);

			assert_near(portable_atan2(y, x), atan2(y, x));
		}
	}
	assert_near(portable_atan2(0, 0), 0);
	assert_near(portable_atan2(0, -1), atan2(0, -1));
	assert_near(portable_atan2(1e-300, -1e300), atan2(1e-300, -1e300));
	assert_near(portable_atan2(-1e300, 1e-300), atan2(-1e300, 1e-300));
}

TEST(sines)
{
	for (int i = -100000; i <= 100000; i++) {
		assert_near(portable_sin(i * 0.01), sin(i * 0.01));
		assert_near(portable_cos(i * 0.99), cos(i * 0.99));
	}
}

TEST_MAIN(NULL, NULL)
