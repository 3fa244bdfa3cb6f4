/*
 * Which tensors and operations of a program tensor parallelism divides (Shoeybi et al. 2019,
 * "Megatron-LM", arXiv:1909.08053, section 3): in the blocks of a vision transformer, the heads of
 * attention and the hidden channels of the perceptron. qkv and fc1 have a part of their rows on
 * each rank, proj and fc2 the matching columns, so each pair needs one sum over the group forward,
 * of proj's or fc2's result, and one backward, of the gradient of qkv's or fc1's input.
 *
 * Found from the graph's structure: attention, the layer that makes its input and the one that
 * takes its result; a linear layer with GELU and the one that takes its result.
 */
#pragma once

#include "trainer/device/cuda/lowering/program.h"
#include "trainer/device/cuda/lowering/roofline.h"

struct mesh_slices {
	const struct cuda_program *program;
	uint32_t parts;     /* ranks of the group; 1 divides nothing */
	bool *tensors;      /* [blocks of the program's arena] */
	bool *params;       /* [parameters] */
	uint8_t *nodes;     /* [nodes] enum mesh_slice */
	uint64_t *elements; /* [parameters] of trained parameters, on a rank; others 0 */
};

/* -ENOMEM. Keeps a reference to the program. */
int mesh_slices_init(struct mesh_slices *slices, const struct cuda_program *program,
		     uint32_t parts);
void mesh_slices_deinit(struct mesh_slices *slices); /* accepts zeroes */
/*
 * Returns a number of the network that `parts` does not divide, with its name in *ret_what; 0 if
 * the network can be divided. *ret_what is NULL if the network has nothing to divide.
 */
uint32_t mesh_slices_refuse(const struct device_graph *graph, uint32_t parts,
			    const char **ret_what);

/* Time of an operation of the program on one rank, at the roofline. */
double mesh_slices_seconds(const struct mesh_slices *slices, const struct roofline_device *device,
			   const struct cuda_op *op);
/* Bytes of the sum over the group after the operation; 0 if there is none. */
uint64_t mesh_slices_sum(const struct mesh_slices *slices, const struct cuda_op *op);
/* Size of the program's arena on one rank. -ENOMEM. */
int mesh_slices_arena(const struct mesh_slices *slices, uint64_t *ret_bytes);
