/*
 * What a file of weights says beside its tensors: to evaluate them takes how images were normalised
 * and what the classes are, and no training set where the file says so itself. Exported weights and
 * checkpoints of this program do, in their metadata (struct checkpoint_about); of another program's
 * there is the shape of the last layer.
 */
#pragma once

#include "trainer/checkpoint/class_names.h"
#include "trainer/checkpoint/safetensors.h"

#include <stdbool.h>

enum { WEIGHTS_FILE_MAX = 512 };

/* Plain data but for the last, which is rank 0's alone. */
struct weights_facts {
	char file[WEIGHTS_FILE_MAX]; /* for errors */
	uint32_t classes;            /* of the last layer; 0: there is none */
	bool normalised;             /* it says by what, so images were bytes */
	double mean[3], std[3];      /* that bytes are, R, G, B in 0..255; std 0: not known */
	/* the classes are; then what is not said of normalising is that there was none */
	bool named;
	struct class_names class_names;
};

/*
 * Of any safetensors file. -EBADMSG: not valid, or metadata that makes no sense. error has
 * CHECKPOINT_ERROR_MAX bytes.
 */
int weights_read(const char *path, struct weights_facts *ret_facts, char *error);
/* Of one that is open. *ret_names stays as it is where it does not name them. */
int weights_class_names(const struct safetensors *source, const char *path,
			struct class_names *ret_names, char *error);
void weights_deinit(struct weights_facts *facts);
