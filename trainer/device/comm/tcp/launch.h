/*
 * What a launcher's environment says about this rank. Variables of torchrun (RANK, WORLD_SIZE,
 * LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), which may also be set by hand, or of
 * srun (SLURM_*). Plain values.
 *
 * torchrun's agent usually listens on MASTER_PORT itself (TORCHELASTIC_USE_AGENT_STORE), with a
 * protocol that has changed between versions of PyTorch and says no version. So rank 0 does not use
 * it: it listens on the first free of LAUNCH_PORTS ports from MASTER_PORT on, and the others ask
 * each of these ports for a rank 0 of their run that has their key.
 */
#pragma once

#include "trainer/device/comm/tcp/sha256.h"

#include <stdbool.h>
#include <stdint.h>

enum { LAUNCH_PORTS = 16, LAUNCH_ADDRESS_MAX = 256, LAUNCH_WORLD_MAX = 4096 };

#define LAUNCH_TIMEOUT_VARIABLE "LOADERD_RANKS_TIMEOUT"

struct launch {
	unsigned rank, world;
	int local_rank, local_world; /* -1 if the launcher does not say */
	char address[LAUNCH_ADDRESS_MAX];
	uint16_t ports[LAUNCH_PORTS]; /* where rank 0 may listen, best first */
	uint8_t run[SHA256_SIZE];     /* tells runs apart; not secret */
	unsigned seconds;             /* time limit of the ranks to connect */
};

/* -EINVAL: error (COMM_ERROR_MAX bytes) names variable, value and remedy. */
int launch_read(struct launch *ret_launch, char *error);
