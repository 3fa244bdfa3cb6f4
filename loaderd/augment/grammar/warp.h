/*
 * Affine maps in torchvision's terms: rotation, scale, shear and translation about a centre, as the
 * matrix that leads from an output pixel to where it comes from. Pure functions of portable
 * arithmetic, so every machine gets the same matrix.
 */
#pragma once

struct warp {
	double degrees;     /* torchvision.affine's sense: clockwise */
	double translate_x; /* pixels */
	double translate_y;
	double scale;
	double slope_x, slope_y;   /* tangents of the shears */
	double centre_x, centre_y; /* pixels from the middle of the picture */
};

/* The inverse matrix, by rows, in pixels from the middle of the picture. */
void warp_matrix(const struct warp *warp, float ret_matrix[6]);
