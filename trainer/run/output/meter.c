#include "trainer/run/output/meter.h"

#include "format/base/system/clock.h"

static void meter_mark_line(struct meter *meter, const struct checkpoint_state *state)
{
	meter->line_seconds = state->train_seconds;
	meter->line_wait = state->wait_seconds;
	meter->line_images = state->images;
}

void meter_start(struct meter *meter, const struct checkpoint_state *state)
{
	meter_skip(meter);
	meter_mark_line(meter, state);
}

void meter_skip(struct meter *meter)
{
	meter->clock = clock_s(CLOCK_MONOTONIC);
}

double meter_lap(struct meter *meter)
{
	double before = meter->clock;
	meter_skip(meter);
	return meter->clock - before;
}

void meter_add(struct meter *meter, const struct device_results *results, double lr)
{
	meter->skipped += results->skipped;
	meter->last_loss = results->loss;
	meter->last_lr = lr;
}

void meter_add_sent(struct meter *meter, const struct comm_sent *sent)
{
	comm_sent_add(&meter->sent, sent, 1);
	meter->sent_steps++;
}

struct comm_sent meter_take_sent(struct meter *meter)
{
	uint64_t steps = meter->sent_steps;
	if (steps)
		meter->sent_mean = (struct comm_sent){
			.sums = meter->sent.sums / steps,
			.reduce_scatters = meter->sent.reduce_scatters / steps,
			.all_gathers = meter->sent.all_gathers / steps,
		};
	meter->sent = (struct comm_sent){0};
	meter->sent_steps = 0;
	return meter->sent_mean;
}

void meter_line(struct meter *meter, const struct checkpoint_state *state, double *ret_seconds,
		double *ret_wait)
{
	*ret_seconds = state->train_seconds - meter->line_seconds;
	*ret_wait = state->wait_seconds - meter->line_wait;
	if (*ret_seconds > 0)
		meter->rate = (double)(state->images - meter->line_images) / *ret_seconds;
	meter_mark_line(meter, state);
}

void meter_reset_skipped(struct meter *meter)
{
	meter->skipped = 0;
}
