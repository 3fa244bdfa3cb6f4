/*
 * A rank for comm_tcp.py: sums until the run ends, and exits as the trainer does. Writes "summing"
 * when all ranks have summed once. With an argument, rank 1 then ends the run with that reason.
 */
#include "trainer/device/comm/comm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

static int loop(struct comm *comm, const char *reason)
{
	static float many[100000];
	double one = 1;
	unsigned request;

	for (unsigned i = 0;; i++) {
		one = 1;
		if (comm_sum_start(comm, many, 100000, COMM_FLOAT, &request) < 0 ||
		    comm_sum(comm, &one, 1, COMM_DOUBLE) < 0 || comm_wait(comm, request) < 0)
			break;
		if (one != comm->world)
			return 2;
		if (i == 0)
			puts("summing");
		fflush(stdout);
		if (i == 1 && reason && comm->rank == 1)
			comm_abort(comm, reason);
	}
	puts(comm_error(comm));
	return comm->ended == COMM_LOST ? EX_TEMPFAIL : comm->ended == COMM_ABORTED ? 1 : 2;
}

int main(int argc, char **argv)
{
	char error[COMM_ERROR_MAX];
	struct comm *comm;
	int r = comm_open(&comm, error);

	if (r < 0) {
		puts(error);
		return r == -ETIMEDOUT || r == -ECONNRESET ? EX_TEMPFAIL : 1;
	}
	int status = loop(comm, argc > 1 ? argv[1] : NULL);
	comm_close(comm);
	return status;
}
