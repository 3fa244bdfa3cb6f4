/*
 * Joined datasets: several open datasets that read as one, for feeds over mixtures. Every function
 * of a reader in packimg.h takes a joined dataset, with the sample indexes, shards, fields, images
 * and classes of the joined one; packimg_rewriter_new() refuses it. Immutable after packimg_join();
 * any thread may use it. Not part of the installed library.
 *
 * What the joined dataset has:
 *
 * - samples, shards: those of all parts, in order;
 * - schema: the values that all parts have under one name and with one description (role, element,
 *   shape, format, normalized, and the value to which they belong), in the order of the first part.
 *   A value that is sparse in one part is sparse. Images that differ only in a fixed height or
 *   width have any. The first image is always in it;
 * - fields: those of the joined schema, then those that no schema has but all parts have with one
 *   name and type;
 * - classes: if all lists of names are beginnings of the longest, that one. Otherwise the union by
 *   name, in the order of appearance: labels are translated, classes with an empty name stay apart,
 *   and masks and fields of class numbers are left out, because nothing translates these. In a part
 *   without names beside parts with names, samples with a label are damaged;
 * - mean and standard deviation: those of the parts if equal; otherwise the mean and standard
 *   deviation of the mixture, in which each sample has the same weight. None if a part with samples
 *   records none;
 * - metadata: those of the parts if equal, otherwise none;
 * - UUID: a hash of the UUIDs of the parts, in order.
 */
#pragma once

#include "format/packimg.h"

enum { PACKIMG_PARTS_MAX = 1024 };

/*
 * Joins 1 to PACKIMG_PARTS_MAX datasets: sample i of part p is sample packimg_part_first(p) + i of
 * the result. Takes ownership of the parts on success; packimg_close() closes them. A single part
 * is itself the result. -EINVAL if a part is joined, comes from packimg_open_info() or is given
 * twice, if some parts are mapped and some are not, if their first images differ, or if a name
 * occurs twice in a list of classes that must be joined by name; -E2BIG if the samples or the
 * classes are too many; -ENOMEM. error may be NULL.
 */
int packimg_join(struct packimg *const *parts, uint32_t count, struct packimg **ret_dataset,
		 struct packimg_error *error);

/* Returns the number of parts, 1 for a dataset that is not joined. */
uint32_t packimg_part_count(const struct packimg *dataset);
/*
 * Returns the part that holds a sample, and the sample's index in it. index must be less than
 * packimg_count().
 */
uint32_t packimg_part_of(const struct packimg *dataset, uint64_t index, uint64_t *ret_index);
/*
 * Returns a part, which the joined dataset owns; the dataset itself if it is not joined. part must
 * be less than packimg_part_count().
 */
const struct packimg *packimg_part(const struct packimg *dataset, uint32_t part);
/* Returns the index of the part's first sample in the joined dataset. */
uint64_t packimg_part_first(const struct packimg *dataset, uint32_t part);
/*
 * Explains why a value that some part's schema has is not in the joined schema, as a clause:
 * "b.pimg has no value 'caption'". Returns false, and leaves text unchanged, if the joined schema
 * has the value or no part has it.
 */
bool packimg_join_lacks(const struct packimg *dataset, const char *name, char *text, size_t size);
