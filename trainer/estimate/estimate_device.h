/*
 * The device that --plan computes for, from DEVICE.json: what estimate.h describes, and "links", an
 * array of the connections between ranks, from those of one machine outwards: objects with "kind",
 * "ranks", "bytes_per_second", "latency_seconds" and "source". A file without links describes a
 * single rank.
 */
#pragma once

#include "trainer/device/cuda/lowering/roofline.h"
#include "trainer/estimate/mesh_formulas.h"

enum { ESTIMATE_LINKS_MAX = 2 };

struct estimate_device {
	struct roofline_device roofline;
	char *name, *source;
	uint64_t memory_bytes;
	char *properties; /* JSON text for cuDNN */
	/* the first connects the ranks of a machine, the second machines */
	struct estimate_link {
		char *kind, *source;
		struct mesh_link link;
	} links[ESTIMATE_LINKS_MAX];
	uint32_t link_count;
};

/* Reads the file. -EINVAL for an error in it; `error` receives ESTIMATE_ERROR_MAX bytes. */
int estimate_device_init(struct estimate_device *device, const char *path, bool tf32, char *error);
void estimate_device_deinit(struct estimate_device *device);
