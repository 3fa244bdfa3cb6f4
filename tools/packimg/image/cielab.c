#include "tools/packimg/image/cielab.h"

#include <math.h>

enum { CELLS = CIELAB_GRID - 1 };

/* The inverse of f (CIE 15, 8.2.1). */
static double cielab_inverse_f(double value)
{
	return value > 24. / 116 ? value * value * value : (value - 16. / 116) * 108 / 841;
}

/* Encodes a linear value as sRGB (IEC 61966-2-1), 16 bits. */
static uint16_t encoded(double linear)
{
	if (linear <= 0)
		return 0;
	if (linear >= 1)
		return UINT16_MAX;
	double value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * pow(linear, 1 / 2.4) - 0.055;
	return (uint16_t)lround(value * UINT16_MAX);
}

static void exact_rgb(double l, double a, double b, uint16_t rgb[3])
{
	/* matrix from XYZ to linear sRGB; adapts the white point D65 to D50 by Bradford's method */
	static const double matrix[3][3] = {
		{3.1338561, -1.6168667, -0.4906146},
		{-0.9787684, 1.9161415, 0.0334540},
		{0.0719453, -0.2289914, 1.4052427},
	};
	double y = (l + 16) / 116;
	double xyz[3] = {0.9642 * cielab_inverse_f(y + a / 500), cielab_inverse_f(y),
			 0.8249 * cielab_inverse_f(y - b / 200)};

	for (int c = 0; c < 3; c++)
		rgb[c] = encoded(matrix[c][0] * xyz[0] + matrix[c][1] * xyz[1] +
				 matrix[c][2] * xyz[2]);
}

void cielab_init(struct cielab *cielab)
{
	for (int l = 0; l < CIELAB_GRID; l++)
		for (int a = 0; a < CIELAB_GRID; a++)
			for (int b = 0; b < CIELAB_GRID; b++)
				exact_rgb(100. * l / CELLS, 255. * a / CELLS - 128,
					  255. * b / CELLS - 128, cielab->rgb[l][a][b]);
}

/* Sorts the axes by the colour's distance from the origin of its cell, largest first. */
static void sort_axes(const uint32_t rest[3], int axes[3])
{
	for (int i = 0; i < 3; i++) {
		int at = i;

		for (; at > 0 && rest[axes[at - 1]] < rest[i]; at--)
			axes[at] = axes[at - 1];
		axes[at] = i;
	}
}

/*
 * Interpolates within the tetrahedron that contains the colour: walks along its edges, one axis
 * after another.
 */
void cielab_rgb(const struct cielab *cielab, const uint8_t lab[3], uint8_t rgb[3])
{
	uint32_t at[3], rest[3], weight = 255;
	uint32_t sums[3] = {0};
	int axes[3];

	for (int i = 0; i < 3; i++) {
		at[i] = (uint32_t)lab[i] * CELLS / 255;
		rest[i] = (uint32_t)lab[i] * CELLS % 255;
	}
	sort_axes(rest, axes);
	for (int i = 0; i <= 3; i++) {
		const uint16_t *corner = cielab->rgb[at[0]][at[1]][at[2]];
		uint32_t next = i < 3 ? rest[axes[i]] : 0;

		for (int c = 0; c < 3; c++)
			sums[c] += (weight - next) * corner[c];
		weight = next;
		if (next)
			at[axes[i]]++;
	}
	for (int c = 0; c < 3; c++)
		rgb[c] = (uint8_t)((sums[c] + 255 * 257 / 2) / (255 * 257));
}
