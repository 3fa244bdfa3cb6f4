#include "format/augment/grammar/warp.h"
#include "format/base/portable_math.h"

void warp_matrix(const struct warp *warp, float ret_matrix[6])
{
	double angle = warp->degrees * (0x1.921fb54442d18p1 / 180);
	double cosine = portable_cos(angle), sine = portable_sin(angle);
	/* Rotation * shear in y * shear in x; the determinant is 1. */
	double a = cosine + sine * warp->slope_y, c = sine - cosine * warp->slope_y;
	double b = -(a * warp->slope_x + sine), d = cosine - c * warp->slope_x;
	double m[4] = {d / warp->scale, -b / warp->scale, -c / warp->scale, a / warp->scale};
	double x = warp->centre_x + warp->translate_x, y = warp->centre_y + warp->translate_y;

	ret_matrix[0] = (float)m[0];
	ret_matrix[1] = (float)m[1];
	ret_matrix[2] = (float)(warp->centre_x - m[0] * x - m[1] * y);
	ret_matrix[3] = (float)m[2];
	ret_matrix[4] = (float)m[3];
	ret_matrix[5] = (float)(warp->centre_y - m[2] * x - m[3] * y);
}
