/* The choice of classes for packs. Internal to packs.c. */
#pragma once

#include "loaderd/order/packs.h"

/* Sets templates, slots and the number of packs, of the packs' classes. Errors of packs_init(). */
int pack_templates_make(struct packs *packs, uint64_t seed, uint64_t bytes_max);
