/* Parts of ranks over TCP: SHA-256 and HMAC, and what is read of launchers' environments. */
#include "tests/test.h"
#include "trainer/device/comm/comm.h"
#include "trainer/device/comm/tcp/launch.h"
#include "trainer/device/comm/tcp/sha256.h"

static void assert_hash(const uint8_t hash[SHA256_SIZE], const char *expected)
{
	char text[2 * SHA256_SIZE + 1];

	for (int i = 0; i < SHA256_SIZE; i++)
		snprintf(text + 2 * (size_t)i, 3, "%02x", hash[i]);
	assert_string_equal(text, expected);
}

/* Examples of NIST for FIPS 180, and of RFC 4231, 4.2 and 4.3. */
TEST(hashes)
{
	static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
	uint8_t hash[SHA256_SIZE], key[SHA256_SIZE] = {0};
	char *many = malloc(1000000);

	sha256("abc", 3, hash);
	assert_hash(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	sha256(two_blocks, sizeof(two_blocks) - 1, hash);
	assert_hash(hash, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
	memset(many, 'a', 1000000);
	sha256(many, 1000000, hash);
	assert_hash(hash, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	free(many);
	memset(key, 0x0b, 20);
	sha256_hmac(key, "Hi There", 8, hash);
	assert_hash(hash, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	memset(key, 0, sizeof(key));
	key[0] = 'J', key[1] = 'e', key[2] = 'f', key[3] = 'e';
	sha256_hmac(key, "what do ya want for nothing?", 28, hash);
	assert_hash(hash, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

static void set(const char *const *variables)
{
	clearenv();
	for (; *variables; variables += 2)
		setenv(variables[0], variables[1], 1);
}

TEST(torchrun)
{
	struct launch launch;
	char error[COMM_ERROR_MAX];

	set((const char *[]){"RANK", "5", "WORLD_SIZE", "8", "LOCAL_RANK", "1", "LOCAL_WORLD_SIZE",
			     "4", "MASTER_ADDR", "node1", "MASTER_PORT", "29500",
			     "TORCHELASTIC_USE_AGENT_STORE", "True", NULL});
	assert_int_equal(launch_read(&launch, error), 0);
	assert_int_equal(launch.rank, 5);
	assert_int_equal(launch.world, 8);
	assert_int_equal(launch.local_rank, 1);
	assert_int_equal(launch.local_world, 4);
	assert_string_equal(launch.address, "node1");
	assert_int_equal(launch.ports[0], 29501);
	setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
	setenv("MASTER_PORT", "65535", 1);
	assert_int_equal(launch_read(&launch, error), 0);
	assert_int_equal(launch.ports[0], 65535);
	assert_int_equal(launch.ports[LAUNCH_PORTS - 1], 65535 - LAUNCH_PORTS + 1);
	unsetenv("MASTER_PORT");
	assert_int_equal(launch_read(&launch, error), -EINVAL);
	assert_non_null(strstr(error, "MASTER_PORT is not set"));
}

TEST(srun)
{
	static const char *const lists[][2] = {
		{"node7", "node7"},
		{"a,b", "a"},
		{"n[01-03,7],b", "n01"},
		{"gpu[12]", "gpu12"},
	};
	struct launch launch;
	char error[COMM_ERROR_MAX];

	set((const char *[]){"SLURM_PROCID", "2", "SLURM_STEP_NUM_TASKS", "3", "SLURM_JOB_ID", "77",
			     "SLURM_STEP_ID", "0", NULL});
	assert_int_equal(launch_read(&launch, error), -EINVAL);
	assert_non_null(strstr(error, "SLURM_STEP_NODELIST is empty"));
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		setenv("SLURM_STEP_NODELIST", lists[i][0], 1);
		assert_int_equal(launch_read(&launch, error), 0);
		assert_string_equal(launch.address, lists[i][1]);
	}
	assert_int_equal(launch.rank, 2);
	assert_int_equal(launch.world, 3);
	assert_int_equal(launch.local_rank, -1);
	assert_in_range(launch.ports[0], 20000, 29999);
}

int main(void)
{
	return test_run(NULL, NULL);
}
