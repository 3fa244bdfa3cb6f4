/*
 * Recognises datasets of other tasks than classification by the names of their files, and in
 * folders by the first bytes of annotation files: COCO, Pascal VOC, YOLO, folders of
 * masks, and those of known_lists.h.
 * Their folders are no classes, and their masks are no images to train on, so a conversion has to
 * be asked for them. Lives in the caller's arena. One thread.
 */
#pragma once

#include "tools/packimg/common/memory.h"
#include "tools/packimg/source/source.h"

enum annotation_sign {
	SIGN_COCO,         /* JSON with a name or the keys of COCO's */
	SIGN_VOC,          /* XML in Annotations/, or with the root element of Pascal VOC's */
	SIGN_YOLO,         /* text whose first line is a class and four numbers in 0..1 */
	SIGN_SEGMENTATION, /* an image in a folder that only segmentation datasets have */
	SIGN_KNOWN,        /* a list that known_lists.h has for a dataset */
	SIGN_LABELS,       /* text in labels/ */
	SIGN_MASKS,        /* an image in a folder named like one of masks */
	SIGN_IMAGES,       /* an image in a folder named like one of images without masks */
	ANNOTATION_SIGNS,
};

struct annotations {
	struct arena *arena;
	/* name of the first file with each sign; NULL if there is none */
	const char *first[ANNOTATION_SIGNS];
	const char *known; /* dataset of the first file with SIGN_KNOWN */
	unsigned examined; /* number of files whose first bytes were read */
};

/* A source at this path begins: looks for COCO's annotations beside it. 0 or -ENOMEM. */
int annotations_begin(struct annotations *annotations, const char *source);
/* An image whose class would be derived from its name. 0 or -ENOMEM. */
int annotations_add_image(struct annotations *annotations, const char *name);
/* A file of the source that is not an image. 0 or -ENOMEM. */
int annotations_add_other(struct annotations *annotations, const char *source, const char *name);
/*
 * Fails with -EINVAL if the files are those of a dataset with annotations, with what they look like
 * and the options that pack them nevertheless.
 */
int annotations_check(const struct annotations *annotations, struct packimg_error *error);
