#include "format/base/portable_math.h"

#include <math.h>
#include <stdbool.h>

/*
 * ln 2 in two parts: the first has 32 trailing zero bits, so its product with a small integer is
 * exact.
 */
static const double ln2_high = 0x1.62e42fep-1, ln2_low = 0x1.efa39ef35793cp-33;

double portable_exp(double x)
{
	double k = rint(x * 0x1.71547652b82fep0);
	double r = x - k * ln2_high - k * ln2_low;
	double sum = 1;

	/* Taylor series on |r| <= 0.35: the 17th term is below 1e-22. */
	for (int i = 16; i > 0; i--)
		sum = 1 + sum * r / i;
	return ldexp(sum, (int)k);
}

double portable_log(double x)
{
	int k;
	double m = frexp(x, &k);

	if (m < 0x1.6a09e667f3bcdp-1) {
		m *= 2;
		k--;
	}
	/* ln m = 2 artanh z with |z| <= 0.172: z^41 is below 1e-31. */
	double z = (m - 1) / (m + 1), square = z * z, sum = 0;

	for (int i = 39; i > 0; i -= 2)
		sum = sum * square + 1.0 / i;
	return k * ln2_high + (k * ln2_low + 2 * z * sum);
}

/* Returns sin(x + quarters * pi / 2). */
static double sine(double x, int quarters)
{
	/*
	 * pi / 2 in two parts: the first has 33 trailing zero bits, so its product with a small
	 * integer is exact.
	 */
	const double half_pi_high = 0x1.921fb544p0, half_pi_low = 0x1.0b4611a626331p-34;
	double k = rint(x * 0x1.45f306dc9c883p-1);
	double r = (x - k * half_pi_high) - k * half_pi_low, square = r * r;
	int quadrant = ((int)k + quarters) & 3;
	bool odd = quadrant & 1;
	double sum = 1;

	/* Taylor series on |r| <= 0.79: the next term is below 1e-18. */
	for (int i = odd ? 18 : 19; i > 1; i -= 2)
		sum = 1 - sum * square / (i * (i - 1));
	sum = odd ? sum : sum * r;
	return quadrant & 2 ? -sum : sum;
}

double portable_sin(double x)
{
	return sine(x, 0);
}

double portable_cos(double x)
{
	return sine(x, 1);
}

double portable_atan2(double y, double x)
{
	const double quarter_pi = 0x1.921fb54442d18p-1;
	double high = fmax(fabs(x), fabs(y)), low = fmin(fabs(x), fabs(y));

	if (high == 0)
		return 0;
	double t = low / high;
	bool large = t > 0.5; /* then atan t = pi / 4 + atan((t - 1) / (t + 1)) */
	double z = large ? (t - 1) / (t + 1) : t, square = z * z, sum = 0;

	/* Taylor series on |z| <= 0.5: the term z^51 / 51 is below 1e-17. */
	for (int i = 49; i > 0; i -= 2)
		sum = 1.0 / i - sum * square;
	double angle = (large ? quarter_pi : 0) + z * sum;

	if (fabs(y) > fabs(x))
		angle = 2 * quarter_pi - angle;
	if (x < 0)
		angle = 4 * quarter_pi - angle;
	return y < 0 ? -angle : angle;
}
