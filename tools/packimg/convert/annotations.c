#include "tools/packimg/convert/annotations.h"

#include "format/base/text/number.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/source/known_lists.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	EXAMINED_MAX = 64,    /* maximum number of files to examine */
	HEAD_SIZE = 64 << 10, /* number of bytes read */
};

/* Prefixes of the names of COCO's annotation files. */
static const char *const coco_begins[] = {
	"instances_", "person_keypoints_", "captions_", "panoptic_", "stuff_", NULL};
static const char *const coco_folders[] = {"annotations", NULL};
static const char *const voc_folders[] = {"Annotations", NULL};
static const char *const label_folders[] = {"labels", NULL};
/* Pascal VOC and Cityscapes. */
static const char *const segmentation_folders[] = {"SegmentationClass",
						   "SegmentationObject",
						   "SegmentationClassAug",
						   "gtFine",
						   "gtCoarse",
						   NULL};
static const char *const mask_folders[] = {
	"masks",      "mask",        "labels",        "annotations",        "annotation",
	"trainannot", "groundtruth", "segmentations", "segmentation_masks", NULL};
static const char *const image_folders[] = {"images",     "image",       "imgs", "img",
					    "JPEGImages", "leftImg8bit", NULL};

static bool is_one_of(const char *name, size_t size, const char *const *list)
{
	for (; *list; list++)
		if (strlen(*list) == size && strncmp(name, *list, size) == 0)
			return true;
	return false;
}

/* Returns the first folder in the name that is one of the list; NULL if there is none. */
static const char *find_folder(const char *name, const char *const *list)
{
	for (const char *slash; (slash = strchr(name, '/')); name = slash + 1)
		if (is_one_of(name, (size_t)(slash - name), list))
			return name;
	return NULL;
}

static int set_sign(struct annotations *annotations, enum annotation_sign sign, const char *name)
{
	if (annotations->first[sign])
		return 0;
	annotations->first[sign] = arena_copy(annotations->arena, name, strlen(name));
	return annotations->first[sign] ? 0 : -ENOMEM;
}

/*
 * COCO keeps the annotations of the images in train2017/ beside that folder, in
 * annotations/instances_train2017.json.
 */
static int find_beside(struct annotations *annotations, const char *source, const char *base)
{
	char path[PATH_MAX], end[NAME_MAX + 8];
	struct dirent *entry;
	int r = 0;

	if (snprintf(path, sizeof(path), "%s/../annotations", source) >= PATH_MAX ||
	    snprintf(end, sizeof(end), "_%s.json", base) >= (int)sizeof(end))
		return 0;
	DIR *folder = opendir(path);
	if (!folder)
		return 0;
	while (!r && (entry = readdir(folder)))
		if (text_ends_with(entry->d_name, end) &&
		    snprintf(path, sizeof(path), "%s/../annotations/%s", source, entry->d_name) <
			    PATH_MAX)
			r = set_sign(annotations, SIGN_COCO, path);
	closedir(folder);
	return r;
}

int annotations_begin(struct annotations *annotations, const char *source)
{
	char *whole = realpath(source, NULL);
	const char *slash = whole ? strrchr(whole, '/') : NULL;
	int r = slash && slash[1] ? find_beside(annotations, source, slash + 1) : 0;

	free(whole);
	return r;
}

int annotations_add_image(struct annotations *annotations, const char *name)
{
	const char *mask = find_folder(name, mask_folders),
		   *image = find_folder(name, image_folders);

	if (find_folder(name, segmentation_folders))
		return set_sign(annotations, SIGN_SEGMENTATION, name);
	/* images/mask/ may well be a class. */
	if (mask && (!image || mask < image))
		return set_sign(annotations, SIGN_MASKS, name);
	return image ? set_sign(annotations, SIGN_IMAGES, name) : 0;
}

/* Reads the first bytes of a file, terminated; an empty text if it cannot be read. */
static void read_head(struct annotations *annotations, const char *source, const char *name,
		      char head[static HEAD_SIZE])
{
	char path[PATH_MAX];

	head[0] = 0;
	if (annotations->examined >= EXAMINED_MAX ||
	    snprintf(path, sizeof(path), "%s/%s", source, name) >= PATH_MAX)
		return;
	annotations->examined++;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t size = fd < 0 ? -1 : read(fd, head, HEAD_SIZE - 1);
	if (fd >= 0)
		close(fd);
	head[size > 0 ? size : 0] = 0;
}

static bool is_coco_text(const char *head)
{
	return (strstr(head, "\"images\"") || strstr(head, "\"annotations\"")) &&
	       (strstr(head, "\"bbox\"") || strstr(head, "\"image_id\"") ||
		strstr(head, "\"file_name\""));
}

static bool is_coco(const char *name, const char *head)
{
	const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;

	if (find_folder(name, coco_folders) || text_ends_with(base, ".coco.json"))
		return true;
	for (const char *const *begin = coco_begins; *begin; begin++)
		if (strncmp(base, *begin, strlen(*begin)) == 0)
			return true;
	return is_coco_text(head);
}

/* Returns true if the first line is a class, centre and size of a box, all in 0..1. */
static bool is_yolo_text(char *head)
{
	unsigned count = 0;
	double value;

	head[strcspn(head, "\r\n")] = 0;
	for (char *cell; (cell = strsep(&head, " \t"));) {
		if (number_double(cell, &value) || value < 0 || (count && value > 1))
			return false;
		count++;
	}
	return count >= 5 && count % 2 == 1;
}

/* Looks at the name of a table or a text. 0 or -ENOMEM. */
static int add_known(struct annotations *annotations, const char *source, const char *name)
{
	char path[PATH_MAX];

	if (annotations->known || snprintf(path, sizeof(path), "%s/%s", source, name) >= PATH_MAX)
		return 0;
	const struct known_list *known = known_list_find(path);
	if (!known || !known->dataset)
		return 0;
	annotations->known = known->dataset;
	return set_sign(annotations, SIGN_KNOWN, name);
}

int annotations_add_other(struct annotations *annotations, const char *source, const char *name)
{
	const bool json = text_ends_with(name, ".json"), xml = text_ends_with(name, ".xml"),
		   text = text_ends_with(name, ".txt");
	char head[HEAD_SIZE];
	int r = 0;

	if (text || text_ends_with(name, ".csv"))
		r = add_known(annotations, source, name);
	if (r || annotations->known || (!json && !xml && !text))
		return r;
	if (text && find_folder(name, label_folders))
		r = set_sign(annotations, SIGN_LABELS, name);
	if (r || annotations->first[json ? SIGN_COCO : xml ? SIGN_VOC : SIGN_YOLO])
		return r;
	read_head(annotations, source, name, head);
	if (json && is_coco(name, head))
		return set_sign(annotations, SIGN_COCO, name);
	if (xml && (find_folder(name, voc_folders) || strstr(head, "<annotation")))
		return set_sign(annotations, SIGN_VOC, name);
	return text && is_yolo_text(head) ? set_sign(annotations, SIGN_YOLO, name) : 0;
}

static int refuse(const char *what, const char *first, struct packimg_error *error)
{
	return packimg_fail(
		error, -EINVAL,
		"the images look like those of %s (%s), whose folders are no classes: \"python -m "
		"loaderd.convert\" with the folder's name packs images and annotations, "
		"--class-from none every image without a label, and --class-from top or parent "
		"makes folders classes nevertheless",
		what, first);
}

int annotations_check(const struct annotations *annotations, struct packimg_error *error)
{
	static const struct {
		enum annotation_sign sign, with;
		const char *what;
	} rows[] = {
		{SIGN_COCO, SIGN_COCO, "a COCO dataset"},
		{SIGN_SEGMENTATION, SIGN_SEGMENTATION, "a segmentation dataset"},
		{SIGN_VOC, SIGN_VOC, "a Pascal VOC dataset"},
		{SIGN_YOLO, SIGN_YOLO, "a YOLO dataset"},
		{SIGN_LABELS, SIGN_IMAGES, "a YOLO dataset"},
		{SIGN_MASKS, SIGN_IMAGES, "a segmentation dataset"},
	};

	if (annotations->known)
		return refuse(annotations->known, annotations->first[SIGN_KNOWN], error);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (annotations->first[rows[i].sign] && annotations->first[rows[i].with])
			return refuse(rows[i].what, annotations->first[rows[i].sign], error);
	return 0;
}
