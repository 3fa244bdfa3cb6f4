/*
 * Internal to comm/: comm.c validates arguments, mpi.c and tcp/ transport. comm.h documents the
 * operations.
 */
#pragma once

#include "trainer/device/comm/comm.h"

struct comm_ops {
	void (*close)(struct comm *comm);
	int (*split)(struct comm *comm, unsigned group, struct comm **ret_comm);
	int (*start)(struct comm *comm, enum comm_operation operation, void *values, size_t count,
		     enum comm_element element, unsigned *ret_request);
	int (*progress)(struct comm *comm);
	int (*wait)(struct comm *comm, unsigned request);
	int (*broadcast)(struct comm *comm, void *bytes, size_t size, unsigned root);
	int (*gather)(struct comm *comm, const void *mine, size_t size, void *ret_all);
	bool (*await_end)(struct comm *comm, unsigned seconds);
	void (*abort)(struct comm *comm, const char *reason);
};

/* In the header, since the module for MPI is not linked with comm.c. */
static inline size_t comm_element_size(enum comm_element element)
{
	return element == COMM_FLOAT ? sizeof(float) : element == COMM_DOUBLE ? sizeof(double) : 1;
}

/* A single rank. */
int comm_open_alone(struct comm **ret_comm, char *error);
/* Opens the ranks of a process whose environment says where they are (tcp/launch.h). */
int comm_tcp_open(struct comm **ret_comm, char *error);
#ifdef HAVE_MPI
/* Opens the ranks of a process that MPI launched. */
int comm_mpi_open(struct comm **ret_comm, char *error);
#endif
