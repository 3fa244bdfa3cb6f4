#include "trainer/estimate/mesh_formulas.h"

const char *const mesh_shard_names[MESH_SHARDS] = {"none", "optimizer", "gradients", "parameters"};

double mesh_value_bytes(const struct mesh_store *store, double weights)
{
	return (store->copies ? 2 : 4) * weights;
}

double mesh_store_bytes(const struct mesh_store *store, enum mesh_shard shard, uint32_t ranks)
{
	double p = (double)store->weights, n = ranks, values = mesh_value_bytes(store, p);
	double kept = store->states + store->averages, masters = store->copies ? 4 : 0;
	double whole = (double)store->whole_bytes + 4 * (2 + kept) * (double)store->others;
	double buckets = 2 * 4 * (double)store->bucket, gathered = (double)store->gathered;
	switch (shard) {
	case MESH_SHARD_OPTIMIZER:
		return whole + values + 4 * p + (4 * kept + masters) * p / n;
	case MESH_SHARD_GRADIENTS:
		return whole + values + buckets + (4 * (1 + kept) + masters) * p / n;
	case MESH_SHARD_PARAMETERS:
		return whole + 4 * (2 + kept) * p / n + 2 * 4 * gathered +
		       2 * mesh_value_bytes(store, gathered);
	case MESH_SHARD_NONE:
	case MESH_SHARDS:
		break;
	}
	return whole + (4 * (1 + kept) + masters) * p + values;
}

double mesh_ring_bytes(double bytes, uint32_t ranks, bool sums)
{
	return bytes * (ranks - 1) / ranks * (sums ? 2 : 1);
}

struct mesh_sent mesh_sent_of_store(const struct mesh_store *store, enum mesh_shard shard,
				    uint32_t ranks, uint32_t micro_batches)
{
	double p = (double)store->weights;
	double scattered = mesh_ring_bytes(4 * p, ranks, false);
	double gathered = mesh_ring_bytes(mesh_value_bytes(store, p), ranks, false);
	struct mesh_sent sent = {.sums = mesh_ring_bytes(4 * (double)store->others, ranks, true)};
	if (shard == MESH_SHARD_NONE)
		sent.sums += 2 * scattered;
	if (shard == MESH_SHARD_OPTIMIZER)
		sent.reduce_scatters = scattered;
	if (shard == MESH_SHARD_GRADIENTS || shard == MESH_SHARD_PARAMETERS)
		sent.reduce_scatters = scattered * micro_batches;
	if (shard == MESH_SHARD_OPTIMIZER || shard == MESH_SHARD_GRADIENTS)
		sent.all_gathers = gathered;
	if (shard == MESH_SHARD_PARAMETERS)
		sent.all_gathers = 2 * gathered * micro_batches;
	return sent;
}

double mesh_ring_seconds(const struct mesh_ring *ring, double bytes, bool sums)
{
	uint32_t machines = ring->ranks / ring->local, rounds = sums ? 2 : 1;
	double crossing = machines - 1, steps = ring->ranks - 1;
	if (ring->ranks == 1)
		return 0;
	double bandwidth = ring->machine->bytes_per_second;
	double latency = (steps - crossing) * ring->machine->latency_seconds;
	if (machines > 1) {
		double network = ring->network->bytes_per_second * ring->local;
		latency += crossing * ring->network->latency_seconds;
		bandwidth = network < bandwidth ? network : bandwidth;
	}
	return rounds * latency + mesh_ring_bytes(bytes, ring->ranks, sums) / bandwidth;
}
