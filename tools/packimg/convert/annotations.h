/*
 * Recognises datasets for other tasks than classification by the names of their files, and in
 * folders by the first bytes of annotation files: COCO, Pascal VOC, YOLO, folders of masks, and
 * the datasets of known_lists.h. Their folders are not classes and their masks are not training
 * images, so convert packs them only if asked to. Memory is in the caller's arena. One thread.
 */
#pragma once

#include "tools/packimg/common/memory.h"
#include "tools/packimg/source/source.h"

enum annotation_sign {
	SIGN_COCO,         /* JSON with the name or the keys of a COCO file */
	SIGN_VOC,          /* XML in Annotations/, or with Pascal VOC's root element */
	SIGN_YOLO,         /* text whose first line is a class and four numbers in 0..1 */
	SIGN_SEGMENTATION, /* an image in a folder that only segmentation datasets have */
	SIGN_KNOWN,        /* a list that known_lists.h has for a dataset */
	SIGN_LABELS,       /* text in labels/ */
	SIGN_MASKS,        /* an image in a folder with a common name for masks */
	SIGN_IMAGES, /* an image in a folder with a common name for the images that belong to masks
		      */
	ANNOTATION_SIGNS,
};

struct annotations {
	struct arena *arena;
	/* name of the first file with each sign; NULL if there is none */
	const char *first[ANNOTATION_SIGNS];
	const char *known; /* dataset of the first file with SIGN_KNOWN */
	unsigned examined; /* number of files whose first bytes were read */
};

/* Call at the start of a source: searches for COCO's annotations next to it. 0 or -ENOMEM. */
int annotations_begin(struct annotations *annotations, const char *source);
/* An image whose class would be derived from its name. 0 or -ENOMEM. */
int annotations_add_image(struct annotations *annotations, const char *name);
/* A file of the source that is not an image. 0 or -ENOMEM. */
int annotations_add_other(struct annotations *annotations, const char *source, const char *name);
/*
 * Returns -EINVAL if the files belong to a dataset with annotations; the message has its kind and
 * the options that pack it anyway.
 */
int annotations_check(const struct annotations *annotations, struct packimg_error *error);
