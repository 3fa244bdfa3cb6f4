#include "trainer/run/context.h"

#include <errno.h>
#include <string.h>

const char *run_device_text(const struct run_context *ctx, int code)
{
	const char *text = device_error(ctx->device);
	return *text ? text : strerror(-code);
}

int run_sum(struct run_context *ctx, double *values, size_t count)
{
	int r = comm_sum(ctx->comm, values, count, COMM_DOUBLE);
	return r < 0 ? run_fail(ctx, r, "%s", comm_error(ctx->comm)) : 0;
}

int run_sum_batch(struct run_context *ctx, double *values, size_t count)
{
	int r = comm_sum(ctx->data_comm, values, count, COMM_DOUBLE);
	return r < 0 ? run_fail(ctx, r, "%s", comm_error(ctx->data_comm)) : 0;
}

int run_vote_group(struct run_context *ctx, int outcome)
{
	double leaving = outcome != 0;
	if (!ctx->group_comm)
		return outcome;
	int r = comm_sum(ctx->group_comm, &leaving, 1, COMM_DOUBLE);
	if (r < 0)
		return run_fail(ctx, r, "%s", comm_error(ctx->group_comm));
	if (outcome || leaving == 0)
		return outcome;
	ctx->lost = 0;
	return RUN_LOST;
}

int run_open_mesh(struct run_context *ctx)
{
	struct comm *comm = ctx->comm;
	unsigned tensor = (unsigned)ctx->recipe->train.tensor;
	ctx->data_comm = comm;
	if (tensor == 1)
		return 0;
	if (comm->world % tensor)
		return run_fail(ctx, -EINVAL,
				"train.tensor = %u does not divide the number of ranks, %u: start "
				"a multiple of it with mpirun -n, or set train.tensor=1",
				tensor, comm->world);
	int r = comm_split(comm, comm->rank / tensor, &ctx->group_comm);
	if (r == 0)
		r = comm_split(comm, comm->rank % tensor, &ctx->data_comm);
	return r < 0 ? run_fail(ctx, r, "%s", comm_error(comm)) : 0;
}

void run_close_mesh(struct run_context *ctx)
{
	if (!ctx->group_comm)
		return;
	if (ctx->data_comm != ctx->comm)
		comm_close(ctx->data_comm);
	comm_close(ctx->group_comm);
}

int run_set_lost(struct run_context *ctx, int code)
{
	ctx->lost = code;
	return code ? RUN_LOST : 0;
}

int run_fail_agreed(struct run_context *ctx, int code)
{
	ctx->agreed = true;
	return code;
}

void run_clear_error(struct run_context *ctx)
{
	*ctx->error = '\0';
}

int run_vote(struct run_context *ctx, int outcome, double *count)
{
	ctx->lost = outcome == -EINTR ? 0 : outcome;
	double votes[] = {outcome == -EINTR, ctx->lost != 0, count ? *count : 0};
	int r = run_sum(ctx, votes, 3);
	if (r < 0)
		return r;
	if (count)
		*count = votes[2];
	if (votes[0] > 0)
		return -EINTR;
	return votes[1] > 0 ? RUN_LOST : 0;
}

int run_report_lost(struct run_context *ctx)
{
	return run_fail_agreed(ctx, ranks_agree(ctx->comm, ctx->lost, ctx->error));
}

int run_refuse_ranks(struct run_context *ctx, const char *option)
{
	if (ctx->comm->world == 1)
		return 0;
	return run_fail_everywhere(
		ctx, -EINVAL,
		"%s supports only one rank, but there are %u: start the trainer without a launcher",
		option, ctx->comm->world);
}
