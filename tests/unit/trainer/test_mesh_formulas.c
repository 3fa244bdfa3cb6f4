/* Memory, bytes and time of meshes, against values computed by hand. */
#include "tests/test.h"
#include "trainer/estimate/mesh_formulas.h"

#include <math.h>

static void near(double value, double expected)
{
	if (fabs(value - expected) > 1e-9 * fabs(expected))
		fail_msg("%.17g, expected %.17g", value, expected);
}

/* AdamW: 18 bytes a weight with copies in 16 bits, 16 in fp32; 16 of other parameters. */
TEST(memory)
{
	static const struct {
		bool copies;
		uint64_t others, whole;
		uint32_t averages;
		double bytes[MESH_SHARDS];
	} cases[] = {
		{true, 0, 0, 0, {18000, 9000, 6800, 4600}},
		{true, 0, 70, 1, {22070, 10070, 7870, 5670}},
		{false, 0, 0, 0, {16000, 10000, 7800, 4800}},
		{true, 10, 0, 0, {18160, 9160, 6960, 4760}},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mesh_store store = {
			.weights = 1000,
			.others = cases[i].others,
			.bucket = 100,
			.gathered = 50,
			.states = 2,
			.averages = cases[i].averages,
			.copies = cases[i].copies,
			.whole_bytes = cases[i].whole,
		};
		for (int shard = 0; shard < MESH_SHARDS; shard++)
			near(mesh_store_bytes(&store, (enum mesh_shard)shard, 4),
			     cases[i].bytes[shard]);
	}
}

TEST(sent)
{
	const struct mesh_store store = {
		.weights = 1000, .others = 10, .copies = true, .states = 2};
	/* of 4 ranks, for an update of three micro-batches */
	static const double sent[MESH_SHARDS][3] = {
		{6060, 0, 0}, {60, 3000, 1500}, {60, 9000, 1500}, {60, 9000, 9000}};
	for (int shard = 0; shard < MESH_SHARDS; shard++) {
		struct mesh_sent s = mesh_sent_of_store(&store, (enum mesh_shard)shard, 4, 3);
		near(s.sums, sent[shard][0]);
		near(s.reduce_scatters, sent[shard][1]);
		near(s.all_gathers, sent[shard][2]);
	}
}

TEST(seconds)
{
	const struct mesh_link machine = {8, 100e9, 1e-6}, network = {64, 10e9, 10e-6};
	const struct mesh_ring one = {1, 1, &machine, NULL}, eight = {8, 8, &machine, NULL};
	const struct mesh_ring two = {16, 8, &machine, &network};
	const struct mesh_ring apart = {2, 1, &machine, &network};
	near(mesh_ring_seconds(&one, 800e6, true), 0);
	near(mesh_ring_seconds(&eight, 800e6, true), 14e-6 + 14e-3);
	near(mesh_ring_seconds(&eight, 800e6, false), 7e-6 + 7e-3);
	/* 14 steps in the machines and one between them, over eight adapters of 10 GB/s */
	near(mesh_ring_seconds(&two, 800e6, false), 24e-6 + 750e6 / 80e9);
	near(mesh_ring_seconds(&apart, 800e6, false), 10e-6 + 400e6 / 10e9);
}

int main(void)
{
	return test_run(NULL, NULL);
}
