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
		"%s supports only one rank, but there are %u: start the trainer without mpirun",
		option, ctx->comm->world);
}
