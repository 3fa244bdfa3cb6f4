#include "trainer/device/comm/tcp/launch.h"

#include "format/base/text/number.h"
#include "format/base/text/sentence.h"
#include "trainer/device/comm/comm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define fail(error, code, ...) sentence_fail((error), COMM_ERROR_MAX, (code), __VA_ARGS__)

enum { SECONDS = 120, SECONDS_MAX = 86400 };

/* Ports for srun without MASTER_PORT: below those that Linux gives to clients by default. */
enum { SLURM_PORT = 20000, SLURM_PORTS = 10000 };

/* ret_value is unchanged if the variable is not set. */
static int launch_number(const char *name, uint64_t low, uint64_t high, uint64_t *ret_value,
			 char *error)
{
	const char *text = getenv(name);

	if (!text || number_u64(text, low, high, ret_value) == 0)
		return 0;
	return fail(error, -EINVAL, "%s=%.40s: expected a number from %llu to %llu", name, text,
		    (unsigned long long)low, (unsigned long long)high);
}

static int launch_place(struct launch *launch, const char *rank_name, const char *world_name,
			char *error)
{
	uint64_t rank = 0, world = 1;
	int r = launch_number(world_name, 1, LAUNCH_WORLD_MAX, &world, error);

	if (r == 0)
		r = launch_number(rank_name, 0, LAUNCH_WORLD_MAX, &rank, error);
	if (r < 0)
		return r;
	if (rank >= world)
		return fail(error, -EINVAL, "%s=%llu has to be below %s=%llu", rank_name,
			    (unsigned long long)rank, world_name, (unsigned long long)world);
	launch->rank = (unsigned)rank;
	launch->world = (unsigned)world;
	return 0;
}

/* torchrun numbers the ranks of a machine without gaps. Only that is believed. */
static int launch_local(struct launch *launch, char *error)
{
	uint64_t rank = 0, world = 0;
	int r = launch_number("LOCAL_WORLD_SIZE", 1, launch->world, &world, error);

	if (r == 0)
		r = launch_number("LOCAL_RANK", 0, launch->world - 1, &rank, error);
	if (r < 0 || !world || !getenv("LOCAL_RANK"))
		return r;
	if (rank >= world || rank > launch->rank || launch->rank - rank + world > launch->world)
		return fail(error, -EINVAL,
			    "LOCAL_RANK=%llu and LOCAL_WORLD_SIZE=%llu do not fit RANK=%u and "
			    "WORLD_SIZE=%u: the ranks of a machine have to follow each other",
			    (unsigned long long)rank, (unsigned long long)world, launch->rank,
			    launch->world);
	launch->local_rank = (int)rank;
	launch->local_world = (int)world;
	return 0;
}

static void launch_ports(struct launch *launch, unsigned port, unsigned skip)
{
	bool down = port + LAUNCH_PORTS + skip > UINT16_MAX;

	for (unsigned i = 0; i < LAUNCH_PORTS; i++)
		launch->ports[i] = (uint16_t)(down ? port - skip - i : port + skip + i);
}

static int launch_address(struct launch *launch, const char *address, char *error)
{
	if (strlen(address) < sizeof(launch->address)) {
		snprintf(launch->address, sizeof(launch->address), "%s", address);
		return 0;
	}
	return fail(error, -EINVAL, "MASTER_ADDR=%.40s... is longer than %d bytes", address,
		    LAUNCH_ADDRESS_MAX - 1);
}

/*
 * The first host of Slurm's list: "a,b" is a, "n[01-03,7],b" is n01. "" if there is no list.
 */
static void launch_first_host(const char *list, char ret_host[LAUNCH_ADDRESS_MAX])
{
	size_t plain = list ? strcspn(list, "[,") : 0;
	const char *number = list && list[plain] == '[' ? list + plain + 1 : "";

	snprintf(ret_host, LAUNCH_ADDRESS_MAX, "%.*s%.*s", (int)plain, list ? list : "",
		 (int)strcspn(number, "-,]"), number);
}

static int launch_read_slurm(struct launch *launch, uint64_t port, char *error)
{
	const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
	char host[LAUNCH_ADDRESS_MAX], name[128];
	int r = launch_place(launch, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", error);

	if (r < 0)
		return r;
	snprintf(name, sizeof(name), "%.60s.%.60s", job ? job : "", step ? step : "");
	sha256(name, strlen(name), launch->run);
	if (!port)
		port = SLURM_PORT + (launch->run[0] * 256U + launch->run[1]) % SLURM_PORTS;
	launch_ports(launch, (unsigned)port, 0);
	if (getenv("MASTER_ADDR"))
		return launch_address(launch, getenv("MASTER_ADDR"), error);
	launch_first_host(getenv("SLURM_STEP_NODELIST"), host);
	if (!*host)
		return fail(error, -EINVAL,
			    "SLURM_STEP_NODELIST is empty: set MASTER_ADDR to the machine of rank "
			    "0");
	return launch_address(launch, host, error);
}

static int launch_read_torch(struct launch *launch, uint64_t port, char *error)
{
	const char *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
	const char *run = getenv("TORCHELASTIC_RUN_ID"), *address = getenv("MASTER_ADDR");
	int r = launch_place(launch, "RANK", "WORLD_SIZE", error);

	if (r == 0)
		r = launch_local(launch, error);
	if (r < 0 || launch->world == 1)
		return r;
	if (!port || !address || !*address)
		return fail(error, -EINVAL,
			    "WORLD_SIZE=%u, but %s is not set: torchrun sets it; without torchrun, "
			    "set MASTER_ADDR to the machine of rank 0 and MASTER_PORT to a free "
			    "port there",
			    launch->world, port ? "MASTER_ADDR" : "MASTER_PORT");
	sha256(run ? run : "", run ? strlen(run) : 0, launch->run);
	launch_ports(launch, (unsigned)port, store && strcmp(store, "True") == 0);
	return launch_address(launch, address, error);
}

int launch_read(struct launch *ret_launch, char *error)
{
	uint64_t port = 0, seconds = SECONDS;

	*ret_launch = (struct launch){.local_rank = -1, .local_world = -1};
	int r = launch_number(LAUNCH_TIMEOUT_VARIABLE, 1, SECONDS_MAX, &seconds, error);
	if (r == 0)
		r = launch_number("MASTER_PORT", 1, UINT16_MAX, &port, error);
	if (r < 0)
		return r;
	ret_launch->seconds = (unsigned)seconds;
	return getenv("RANK") && getenv("WORLD_SIZE") ? launch_read_torch(ret_launch, port, error)
						      : launch_read_slurm(ret_launch, port, error);
}
