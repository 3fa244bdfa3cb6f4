#include "tools/packimg/source/known_lists.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BY_FOLDER                                                                                  \
	"\"python -m loaderd.convert\" with the name of the dataset's folder writes a dataset "    \
	"with all of its annotations"

static const struct known_list lists[] = {
	{"list_attr_celeba.txt", NULL, "CelebA's attributes", BY_FOLDER, "CelebA"},
	{"list_eval_partition.txt", NULL, "CelebA's split", BY_FOLDER, "CelebA"},
	{"list_landmarks_align_celeba.txt", NULL, "CelebA's landmarks", BY_FOLDER, "CelebA"},
	{"list_landmarks_celeba.txt", NULL, "CelebA's landmarks", BY_FOLDER, "CelebA"},
	{"list_bbox_celeba.txt", NULL, "CelebA's boxes", BY_FOLDER, "CelebA"},
	/* The folders of its images are its classes. */
	{"images.txt", "image_class_labels.txt", "the list of images of CUB-200", BY_FOLDER, NULL},
	{"image_class_labels.txt", "images.txt", "the classes of CUB-200", BY_FOLDER, NULL},
	{"bounding_boxes.txt", "images.txt", "the boxes of CUB-200", BY_FOLDER, NULL},
	{"train_test_split.txt", "images.txt", "the split of CUB-200", BY_FOLDER, NULL},
	{"list.txt", "trimaps", "the list of the Oxford-IIIT Pet dataset", BY_FOLDER,
	 "the Oxford-IIIT Pet dataset"},
	{"LOC_*_solution.csv", NULL, "the classes and boxes of ImageNet on Kaggle", BY_FOLDER,
	 NULL},
	{"LOC_synset_mapping.txt", NULL, "the names of ImageNet's classes",
	 "give the folder of the images to packimg convert", NULL},
	{"ILSVRC2012_validation_ground_truth.txt", NULL,
	 "the classes of ImageNet's validation images, by number and without their names",
	 "move the images to a folder for each class, and give that to packimg convert", NULL},
	{"ImageSets/*/*.txt", NULL, "a list of Pascal VOC", BY_FOLDER, NULL},
	{"*-annotations-bbox.csv", NULL, "Open Images' boxes", BY_FOLDER, NULL},
	{"*-imagelabels*.csv", NULL, "Open Images' labels", BY_FOLDER, NULL},
};

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Returns true if the whole path of a file, with its folders, is that of the list. */
static bool is_list(const struct known_list *list, const char *path)
{
	char *whole = realpath(path, NULL), pattern[NAME_MAX], beside[PATH_MAX];

	if (!whole)
		return false;
	snprintf(pattern, sizeof(pattern), "*/%s", list->name);
	int folder = (int)(base_of(whole) - whole);
	bool found = fnmatch(pattern, whole, 0) == 0 &&
		     (!list->beside || (snprintf(beside, sizeof(beside), "%.*s%s", folder, whole,
						 list->beside) < PATH_MAX &&
					!access(beside, F_OK)));
	free(whole);
	return found;
}

const struct known_list *known_list_find(const char *path)
{
	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
		if (fnmatch(base_of(lists[i].name), base_of(path), 0) == 0 &&
		    is_list(&lists[i], path))
			return &lists[i];
	return NULL;
}
