#include "format/augment/grammar/warp.h"
#include "format/base/portable_math.h"

/* Computes rotation * shear in y * shear in x: a, b, c, d. The determinant is 1. */
static void warp_turn(const struct warp *warp, double ret_turn[4])
{
	double angle = warp->degrees * (0x1.921fb54442d18p1 / 180);
	double cosine = portable_cos(angle), sine = portable_sin(angle);
	double a = cosine + sine * warp->slope_y, c = sine - cosine * warp->slope_y;

	ret_turn[0] = a;
	ret_turn[1] = -(a * warp->slope_x + sine);
	ret_turn[2] = c;
	ret_turn[3] = cosine - c * warp->slope_x;
}

void warp_matrix(const struct warp *warp, float ret_matrix[6])
{
	double turn[4];

	warp_turn(warp, turn);
	double m[4] = {turn[3] / warp->scale, -turn[1] / warp->scale, -turn[2] / warp->scale,
		       turn[0] / warp->scale};
	double x = warp->centre_x + warp->translate_x, y = warp->centre_y + warp->translate_y;

	ret_matrix[0] = (float)m[0];
	ret_matrix[1] = (float)m[1];
	ret_matrix[2] = (float)(warp->centre_x - m[0] * x - m[1] * y);
	ret_matrix[3] = (float)m[2];
	ret_matrix[4] = (float)m[3];
	ret_matrix[5] = (float)(warp->centre_y - m[2] * x - m[3] * y);
}

void warp_forward(const struct warp *warp, float ret_matrix[6])
{
	double turn[4];

	warp_turn(warp, turn);
	double m[4] = {turn[0] * warp->scale, turn[1] * warp->scale, turn[2] * warp->scale,
		       turn[3] * warp->scale};
	double x = warp->centre_x, y = warp->centre_y;

	ret_matrix[0] = (float)m[0];
	ret_matrix[1] = (float)m[1];
	ret_matrix[2] = (float)(x + warp->translate_x - m[0] * x - m[1] * y);
	ret_matrix[3] = (float)m[2];
	ret_matrix[4] = (float)m[3];
	ret_matrix[5] = (float)(y + warp->translate_y - m[2] * x - m[3] * y);
}
