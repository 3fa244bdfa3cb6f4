/*
 * What training on a mesh of GPUs needs: memory and bytes sent by each rank, and the time of a
 * collective. `trainer --plan --ranks=N` prints the results; tests compare them with measurements.
 * Pure functions.
 *
 * A mesh has data x tensor ranks. The ranks of a tensor group hold parts of the matrices of each
 * block (device_params_divide()) and compute the same batch; the data ranks with equal parts
 * compute different batches and divide the store among them (Rajbhandari et al. 2019, "ZeRO: Memory
 * Optimizations Toward Training Trillion Parameter Models", arXiv:1910.02054).
 *
 * n = data ranks; of a rank's part, in elements: P weights of convolutions and matrices, V other
 * trained parameters, B weights of the longest bucket of gradients, G of the longest one that is
 * gathered (device/shards.h); s optimizer states, a averages. Only weights are divided. Computation
 * reads C bytes of them: copies of 2 P in 16 bits, whose fp32 masters m = 4 are needed for updates
 * alone; in fp32 4 P, and m = 0.
 *
 *     memory in bytes    none          (4 (1 + s + a) + m) P + C
 *                        optimizer     C + 4 P + (4 (s + a) + m) P / n
 *                        gradients     C + 2 x 4 B + (4 (1 + s + a) + m) P / n
 *                        parameters    4 (2 + s + a) P / n + 2 x 4 G + 2 C G / P
 *                        all           and 4 (2 + s + a) V
 *     bytes sent         none          sums of 4 P
 *                        optimizer     reduce-scatters of 4 P, all-gathers of C
 *                        gradients     reduce-scatters of 4 P per micro-batch, all-gathers of C
 *                        parameters    reduce-scatters of 4 P, all-gathers of 2 C, per micro-batch
 *                        all           and sums of 4 V
 *
 * Without "per micro-batch", once per update. With AdamW and copies: 18 P; 6 P + 12 P / n; 2 P + 16
 * P / n + 8 B; 16 P / n + 12 G: gathered copies are made of the masters. Two buckets are in work at
 * a time, and two gathered ones. Backward gathers no bucket that forward has left.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum mesh_shard {
	MESH_SHARD_NONE,
	MESH_SHARD_OPTIMIZER,
	MESH_SHARD_GRADIENTS,
	MESH_SHARD_PARAMETERS,
	MESH_SHARDS,
};

/* Words of train.shard, by enum mesh_shard. */
extern const char *const mesh_shard_names[MESH_SHARDS];

struct mesh_store {
	uint64_t weights, others;  /* P and V */
	uint64_t bucket, gathered; /* B and G */
	uint32_t states, averages; /* s and a */
	bool copies;               /* weights have copies in 16 bits */
	uint64_t whole_bytes;      /* besides the formula's: buffers and frozen parameters */
};

/* Bytes of weights as computation reads them: C of P. */
double mesh_value_bytes(const struct mesh_store *store, double weights);
/* Bytes of a rank's store. */
double mesh_store_bytes(const struct mesh_store *store, enum mesh_shard shard, uint32_t ranks);

/* As in struct comm_sent (device/comm/comm.h): what a rank sends, by the formula of a ring. */
struct mesh_sent {
	double sums, reduce_scatters, all_gathers;
};
/* Of gradients and values, for an update of `micro_batches`. */
struct mesh_sent mesh_sent_of_store(const struct mesh_store *store, enum mesh_shard shard,
				    uint32_t ranks, uint32_t micro_batches);
/* Bytes that a rank of a ring sends for a collective of `bytes`: once around, sums twice. */
double mesh_ring_bytes(double bytes, uint32_t ranks, bool sums);

struct mesh_link {
	uint32_t ranks;          /* number that it connects */
	double bytes_per_second; /* that a rank sends, in one direction */
	double latency_seconds;  /* of each step of a ring */
};

/* The ring of a group: `local` of its ranks on each machine. */
struct mesh_ring {
	uint32_t ranks, local;
	const struct mesh_link *machine, *network; /* network: NULL if local == ranks */
};

/*
 * Time of a collective of `bytes`. A ring takes ranks - 1 steps, a sum twice as many; as in NCCL's
 * model (src/graph/tuning.cc) those between machines have the network's latency. The ranks of a
 * machine have a network adapter each, and the ring goes over all of them.
 */
double mesh_ring_seconds(const struct mesh_ring *ring, double bytes, bool sums);
