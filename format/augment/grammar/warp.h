/*
 * Affine maps in torchvision's terms: rotation, scale, shear and translation about a centre.
 * Computes their matrices, row by row, in pixels from the middle of the picture. Pure functions in
 * portable arithmetic: every machine computes the same matrices.
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

/* Computes the matrix from output to input positions, for pixels. */
void warp_matrix(const struct warp *warp, float ret_matrix[6]);
/* Computes its inverse, from input to output positions, for boxes and points. */
void warp_forward(const struct warp *warp, float ret_matrix[6]);
