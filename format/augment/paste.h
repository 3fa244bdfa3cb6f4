/*
 * copy_paste (Ghiasi et al. 2021, "Simple Copy-Paste is a Strong Data Augmentation Method for
 * Instance Segmentation"): objects of one finished sample are pasted over another. Which objects is
 * chosen as in torchvision's references (SimpleCopyPaste: as many draws with replacement as there
 * are objects), and which objects of the sample below go as in MMDetection's CopyPaste
 * (bbox_occluded_thr, mask_occluded_thr); pixels are copied without blending. Another sample is
 * drawn here, and made by the caller, which has all memory. Everything depends only on (seed,
 * epoch, sample) and on both finished samples.
 *
 * Rasters and images are rows without padding. Covers have a byte for each pixel of the finished
 * picture: 1 where an object is pasted, else 0. One thread at a time.
 */
#pragma once

#include "format/augment/frame.h"
#include "format/augment/polygon_mask.h"
#include "format/base/random.h"

/* What is drawn for a sample. */
struct paste {
	bool on;                     /* something is pasted, unless there are no objects */
	uint64_t other;              /* random bits that choose the other sample */
	struct random_stream random; /* chooses its objects */
};

/* A row of numbers of boxes in a mask. */
struct paste_number {
	int32_t number; /* of the object's pixels; none if it is below 1 */
	uint32_t object;
};

/* How a finished sample tells the pixels of its objects. Nobody changes it meanwhile. */
struct paste_objects {
	uint32_t width, height; /* of finished pictures */
	uint32_t count;
	/* by a mask, of whole numbers: */
	const void *mask; /* [height][width], NULL for polygons */
	enum schema_element element;
	int32_t most; /* largest number that mask and boxes can have: paste_largest_number() */
	const struct paste_number *numbers; /* [count], sorted by paste_numbers_sort() */
	/* or by polygons of `count` objects: */
	const float *vertices; /* [vertex_count][2] */
	size_t vertex_count;
	struct polygon_mask polygons;
};

/* The pixels of an object. */
struct paste_area {
	struct pixel_box box; /* round them */
	uint64_t pixels;      /* 0 also if they are not known: polygon_mask.h */
};

/* Draws for the sample `index`, for a pipeline with copy_paste. */
void paste_draw(const struct pipeline *pipeline, uint64_t seed, uint64_t epoch, uint64_t index,
		struct paste *ret_paste);
/* Sets a byte for each of the other sample's objects: 1 if it is chosen, else 0. */
void paste_choose(const struct paste *paste, uint8_t *ret_chosen, uint32_t count);

/* Returns true if numbers of this element can be those of objects. */
bool paste_takes_numbers(enum schema_element element);
/* Returns the largest number that objects get in this element. */
int32_t paste_largest_number(enum schema_element element);
/* Reads `count` numbers of boxes. Those that no mask can have are read as 0. */
void paste_numbers_load(enum schema_element element, const void *rows, uint32_t count,
			struct paste_number *ret_numbers);
/* Sorts by number, and then by object. */
void paste_numbers_sort(struct paste_number *numbers, uint32_t count);

/*
 * Sets ret_whole [count] to the pixels of each object, and ret_visible to those where cover is 0,
 * unless it is NULL. Objects with the same number have the same pixels.
 */
void paste_measure(struct paste_objects *objects, const uint8_t *cover,
		   struct paste_area *ret_whole, struct paste_area *ret_visible);
/* Sets the cover to 1 at the pixels of chosen objects, and leaves others. */
void paste_cover(struct paste_objects *objects, const uint8_t *chosen, uint8_t *cover);

/*
 * Gives chosen objects of a mask numbers that neither the mask below nor the numbers of its boxes
 * have, the smallest first: ret_numbers [count], by object, 0 of those that are not chosen. Objects
 * with the same number are one: they get the same, and all are chosen if one is. An object for
 * which no number is left is no longer chosen. Call it before paste_cover().
 */
void paste_renumber(const struct paste_objects *below, const struct paste_objects *above,
		    uint8_t *chosen, int32_t *ret_numbers);
/* Pastes the mask of the objects above, with their new numbers, over the mask below. */
void paste_mask(const struct paste_objects *above, const int32_t *numbers, const uint8_t *cover,
		void *mask);

/*
 * Sets the part of finished pictures that chosen objects need. Returns false if none is chosen that
 * has pixels.
 */
bool paste_window(const struct pipeline *pipeline, const struct paste_objects *objects,
		  const struct paste_area *areas, const uint8_t *chosen,
		  struct pipeline_window *ret_window);
/* Pastes finished pixels. above: of the window; below: of all; pixel: bytes of one, in a plane. */
void paste_pixels(const uint8_t *cover, uint32_t width, uint32_t height,
		  const struct pipeline_window *window, size_t pixel, uint32_t planes,
		  const void *above, void *below);

/*
 * Returns false if an object of the sample below goes. whole: its pixels, visible: those that are
 * not covered.
 */
bool paste_keeps(const struct pipeline *pipeline, const struct paste_area *whole,
		 const struct paste_area *visible);
/*
 * Moves the sides of a finished box to what is visible of its object, where what is hidden has
 * moved those of the object; leaves rotated boxes.
 */
void paste_shrink_box(const struct coordinates *coordinates, const struct paste_objects *objects,
		      const struct paste_area *whole, const struct paste_area *visible, float *row);
