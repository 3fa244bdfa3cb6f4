/*
 * The samples of a dataset by class, for draws by class. If the whole dataset is selected and its
 * files list their samples by class (format/hints.h), the lists stay in the files, and the index
 * takes 8 bytes per class and file. Otherwise it takes 4 bytes per sample, 8 if the dataset has
 * more than 2^32. Immutable once initialised; any thread may read it.
 */
#pragma once

#include "format/packimg.h"
#include "loaderd/order/selection.h"

struct class_index {
	uint32_t class_count;
	uint64_t *starts;            /* [class_count + 1], owned: the members before each class */
	struct selection members;    /* unless they are in the files */
	const struct packimg *files; /* with the members; outlives the index */
	uint32_t shard_count;
	/* [class_count][shard_count + 1], owned: the members of a class in the shards before */
	uint64_t *shard_starts;
};

/*
 * Uses the lists of the files, or reads the label of each selected sample, once; samples without
 * label, or with a damaged record, are no members. A list's entries are members as often as they
 * are listed. Reads the dataset: call it inside sigbus_guard_enter(). -EINVAL if the dataset has no
 * class names; -ENOMEM.
 */
int class_index_init(struct class_index *index, const struct packimg *dataset,
		     const struct selection *selection);
/* Members of all classes. */
uint64_t class_index_count(const struct class_index *index);
uint64_t class_index_size(const struct class_index *index, uint32_t class_number);
/*
 * Returns a sample number of the dataset; member < class_index_size(). If a file has changed so
 * that it does not tell, the first sample of the file. Needs no guard.
 */
uint64_t class_index_member(const struct class_index *index, uint32_t class_number,
			    uint64_t member);
uint64_t class_index_bytes(const struct class_index *index);
void class_index_deinit(struct class_index *index);
