/*
 * Affine maps in torchvision's terms: rotation, scale, shear and translation about a centre.
 * Computes the matrix that maps an output pixel to its input position. Pure functions in portable
 * arithmetic: every machine computes the same matrix.
 */
#pragma once

struct warp {
	double degrees;     /* clockwise, as in torchvision.affine */
	double translate_x; /* pixels */
	double translate_y;
	double scale;
	double slope_x, slope_y;   /* tangents of the shears */
	double centre_x, centre_y; /* pixels from the middle of the picture */
};

/*
 * Computes the matrix from output to input, row by row, in pixels from the middle of the picture.
 */
void warp_matrix(const struct warp *warp, float ret_matrix[6]);
