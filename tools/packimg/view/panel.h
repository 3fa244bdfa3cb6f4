/*
 * One picture of a sample: of its first image, of a further image or of a raster; as stored or as a
 * pipeline delivers it; with a layer of the masks and the shapes that are in its frame. A delivered
 * picture is made with the daemon's functions, for the same seed, epoch and sample; for 8-bit
 * images it has exactly the daemon's bytes. A struct panel_maker belongs to one thread; a struct
 * panel is reused from picture to picture.
 */
#pragma once

#include "format/augment/resize.h"
#include "tools/packimg/image/image.h"
#include "tools/packimg/view/panel_pipeline.h"
#include "tools/packimg/view/shapes.h"

enum {
	PANEL_MASK_ALPHA = 128,
	PANEL_VALUES_MAX = SCHEMA_VALUES_MAX,
	PANEL_NOTE_MAX = 256, /* bytes with the terminator */
};

struct panel {
	uint32_t width, height; /* pixels; 0 if the sample has no picture */
	struct buffer rgb;      /* height x width x 3 bytes */
	bool has_mask;
	/*
	 * height x width x 4 bytes: translucent colour_of() each number; transparent where it is 0
	 */
	struct buffer mask;
	struct shapes shapes;
	/* What the picture shows, for people, completely and in few words; arbitrary bytes. */
	char note[PANEL_NOTE_MAX], label[PANEL_NOTE_MAX];
	char fault[PACKIMG_ERROR_MAX]; /* the reason if there is no picture; arbitrary bytes */
};

struct panel_maker {
	const struct packimg *dataset;
	uint32_t side_max; /* pixels of the longer side of a picture as stored */
	struct panel_pipeline *pipeline;
	/* Numbers in the schema of the values of which a sample has pictures, the first image
	 * first. */
	unsigned values[PANEL_VALUES_MAX];
	unsigned value_count;
	struct image_reader reader;
	struct resize *resize;
	struct pipeline_scratch *scratch;
	struct buffer bytes; /* of a finished sample */
	struct buffer boxes; /* by which the pipeline chooses a crop, and room for their corners */
};

/*
 * Lists the first image, the further images and the rasters of a schema in its order, but for the
 * first image, which comes first. Returns how many there are, at least 1.
 */
unsigned panel_values(const struct schema *schema, unsigned ret_values[PANEL_VALUES_MAX]);

/*
 * pipeline may be NULL: call only panel_stored() then. Returns 0 or -ENOMEM; call deinit also after
 * a failure.
 */
int panel_maker_init(struct panel_maker *maker, const struct packimg *dataset, uint32_t side_max,
		     struct panel_pipeline *pipeline);
void panel_maker_deinit(struct panel_maker *maker);
/*
 * Make the picture of one of maker->values, of the sample with that index record. Without a picture
 * they set panel->fault, and return 1 if the sample is damaged, 0 if it lacks the value or no feed
 * delivers it. Returns 0, 1 or -ENOMEM.
 */
int panel_stored(struct panel_maker *maker, const struct packimg_sample *sample, unsigned value,
		 struct panel *panel);
int panel_delivered(struct panel_maker *maker, const struct packimg_sample *sample, unsigned value,
		    struct panel *panel);
void panel_deinit(struct panel *panel);
