/*
 * One open dataset, which may be joined from several (format/join.h): its packed image files, the
 * verification state of its samples (checksum verified, found damaged), and the guard over its
 * mappings. All feeds that read the dataset share it; any thread may use it. The owner keeps the
 * reference count (registry.h).
 */
#pragma once

#include "format/packimg.h"
#include "loaderd/io/sigbus_guard.h"

#include <stdbool.h>
#include <stdint.h>

struct dataset {
	struct packimg *image;
	bool mapped; /* if false, samples are copied with packimg_read() */
	/*
	 * Its files are still being filled, and one feed has it: filling.h decides when a sample is
	 * verified, and further images are on each use. Set before the first use.
	 */
	bool filling;
	char *path;        /* as named by the client; of a joined dataset, the first parts' paths */
	char **part_paths; /* owned; of a joined dataset, as named by the client */
	uint32_t part_path_count;
	uint64_t count;
	uint64_t bytes; /* total size of the files */
	struct sigbus_guard_map guard;
	struct sigbus_guard_region *regions; /* owned; one per shard */
	_Atomic uint64_t *checked;           /* bit per sample: checksum verified */
	/* bit per sample and further image, sample by sample: checksum verified */
	_Atomic uint64_t *images_checked;
	/* Bit per sample: wrong checksum, or the file is too short or cannot be read. */
	_Atomic uint64_t *damaged;
	_Atomic uint64_t *reported; /* bit per sample: dataset_first_report() has been called */
	/*
	 * Set by the first fault: pages of verified samples may have been replaced, so samples are
	 * verified on each use from then on.
	 */
	_Atomic bool suspect;
};

/* The files of a dataset, or of one that is to be joined with others. */
struct dataset_files {
	const char *path; /* for messages */
	int *fds;         /* owned by the caller; those that are taken over become -1 */
	uint32_t count;
};

/*
 * Opens the dataset in these files, joined if there is more than one part. If `mapped`, calls
 * packimg_open_fds(), else packimg_open_unmapped(), and returns their errors and those of
 * packimg_join(). Reads the files inside a guard: returns -EBADMSG if a file shrinks while it is
 * being opened. Takes fds over even if it fails.
 */
int dataset_open(const struct dataset_files *parts, uint32_t part_count, bool mapped,
		 struct dataset **ret_dataset, struct packimg_error *error);
/*
 * Returns the path of the dataset, or of the part that holds the sample, for messages; *ret_number
 * is the sample's number in it.
 */
const char *dataset_locate(const struct dataset *dataset, uint64_t index, uint64_t *ret_number);
/* Returns the sample's number in its part, for messages. */
uint64_t dataset_number(const struct dataset *dataset, uint64_t index);
void dataset_free(struct dataset *dataset);

/*
 * Looks up a sample. Call it inside sigbus_guard_enter(&dataset->guard). If `verify` is true,
 * verifies the checksum unless it has been verified before. If `verify` is false, the caller may
 * replace data and side with a copy and must call dataset_verify() on it. Returns -EBADMSG and sets
 * error->text if the sample is damaged.
 */
int dataset_sample(struct dataset *dataset, uint64_t index, bool verify,
		   struct packimg_sample *ret_sample, struct packimg_error *error);
/*
 * Looks up a further image of a sample, packimg_image(), under the same conditions. Returns
 * -ENODATA if the sample lacks it, and -EBADMSG with error->text if it is damaged: then the sample
 * is bad for feeds that deliver this image, but not for others.
 */
int dataset_image(struct dataset *dataset, uint64_t index, uint32_t image,
		  struct packimg_sample *ret_image, struct packimg_error *error);
/*
 * Verifies the checksum of a further image, unless it has been verified before. Returns -EBADMSG,
 * or -EUCLEAN if the files are being filled.
 */
int dataset_verify_image(struct dataset *dataset, const struct packimg_sample *sample,
			 uint32_t image, struct packimg_error *error);
int dataset_verify(struct dataset *dataset, const struct packimg_sample *sample,
		   struct packimg_error *error);
/* Returns -EBADMSG and sets error->text if the sample has been found damaged, else 0. */
int dataset_known(struct dataset *dataset, uint64_t index, struct packimg_error *error);
/* Marks a sample as permanently damaged. */
void dataset_condemn(struct dataset *dataset, uint64_t index);
/* Returns true on the first call for a sample; the caller then reports it. */
bool dataset_first_report(struct dataset *dataset, uint64_t index);
