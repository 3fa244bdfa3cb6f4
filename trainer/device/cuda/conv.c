#include "trainer/device/cuda/conv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void conv_problem_init(struct conv_problem *problem)
{
	memset(problem, 0, sizeof(*problem));
	problem->groups = 1;
}

uint32_t conv_weight_channels(const struct conv_problem *problem)
{
	return problem->c / problem->groups;
}

static bool sizes_fit(const struct conv_problem *problem)
{
	uint64_t pads = 2 * (uint64_t)problem->pad + problem->pad_extra;
	uint64_t h = problem->h + pads, w = problem->w + pads;

	if (!problem->n || !problem->h || !problem->w || !problem->c || !problem->k ||
	    !problem->r || !problem->s || !problem->stride || h < problem->r || w < problem->s)
		return false;
	if (!problem->groups || problem->c % problem->groups || problem->k % problem->groups)
		return false;
	return problem->p == (h - problem->r) / problem->stride + 1 &&
	       problem->q == (w - problem->s) / problem->stride + 1;
}

static bool prologue_adds(const struct conv_problem *problem)
{
	return problem->prologue == CONV_SCALE_BIAS_ADD_RELU ||
	       problem->prologue == CONV_DUAL_SCALE_BIAS_ADD_RELU;
}

static bool parts_fit(const struct conv_problem *problem)
{
	bool forward = problem->direction == CONV_FORWARD;
	bool adds = prologue_adds(problem);

	if (problem->prologue != CONV_PLAIN && problem->direction == CONV_DATA)
		return false;
	if (adds && !forward)
		return false;
	if (problem->shortcut != CONV_NO_SHORTCUT && problem->epilogue != CONV_RELU_NORM)
		return false;
	switch (problem->epilogue) {
	case CONV_STORE:
		return !problem->residual;
	case CONV_STATISTICS:
		return forward && !problem->residual;
	case CONV_BIAS:
		return forward && !(adds && problem->residual);
	case CONV_ADD:
		return problem->direction == CONV_DATA && !problem->residual;
	case CONV_RELU_NORM:
		return problem->direction == CONV_DATA;
	}
	return false;
}

int conv_problem_check(const struct conv_problem *problem)
{
	return sizes_fit(problem) && parts_fit(problem) ? 0 : -EINVAL;
}

static const char *const elements[] = {"f32", "f16", "bf16"};

void conv_problem_name(const struct conv_problem *problem, char *ret_text, size_t size)
{
	static const char *const directions[] = {"forward", "data gradient", "weight gradient"};
	static const char *const prologues[] = {"", " scale-bias-relu", " scale-bias-add-relu",
						" dual-scale-bias-add-relu"};
	static const char *const epilogues[] = {"", " statistics", " bias", " add", " relu-norm"};
	static const char *const activations[] = {"", "-relu", "-gelu"};
	static const char *const shortcuts[] = {"", "-shortcut", "-shortcut-norm"};
	bool bias = problem->epilogue == CONV_BIAS;
	char groups[24] = "";

	if (problem->groups > 1)
		snprintf(groups, sizeof(groups), " in %u groups", problem->groups);
	snprintf(ret_text, size, "%s %ux%u/%u %u>%u%s %ux%u n%u %s%s%s%s%s%s%s%s",
		 directions[problem->direction], problem->r, problem->s, problem->stride,
		 problem->c, problem->k, groups, problem->h, problem->w, problem->n,
		 elements[problem->element],
		 problem->direction == CONV_WEIGHTS && problem->gradient != problem->element ? ">"
											     : "",
		 problem->direction == CONV_WEIGHTS && problem->gradient != problem->element
			 ? elements[problem->gradient]
			 : "",
		 prologues[problem->prologue], epilogues[problem->epilogue],
		 problem->residual ? "-add" : "", shortcuts[problem->shortcut],
		 bias ? activations[problem->activation] : "");
}

double conv_problem_flops(const struct conv_problem *problem)
{
	return 2.0 * problem->n * problem->p * problem->q * problem->k * problem->r * problem->s *
	       conv_weight_channels(problem);
}

uint64_t conv_problem_bytes(const struct conv_problem *problem)
{
	uint64_t size = cuda_element_size(problem->element);
	uint64_t x = size * problem->n * problem->h * problem->w * problem->c;
	uint64_t y = size * problem->n * problem->p * problem->q * problem->k;
	uint64_t w = (uint64_t)problem->k * problem->r * problem->s * conv_weight_channels(problem);
	uint64_t vectors = 0, bytes = x + y;

	bytes += w *
		 (problem->direction == CONV_WEIGHTS ? cuda_element_size(problem->gradient) : size);
	if (problem->prologue != CONV_PLAIN)
		vectors += 2 * size * problem->c;
	if (problem->prologue == CONV_DUAL_SCALE_BIAS_ADD_RELU)
		vectors += 2 * size * problem->c;
	if (prologue_adds(problem))
		bytes += 2 * x; /* the residual that is read and `activated`, which is written */
	switch (problem->epilogue) {
	case CONV_STORE:
		break;
	case CONV_STATISTICS:
		vectors += 2 * sizeof(float) * problem->k;
		break;
	case CONV_BIAS:
		vectors += size * problem->k;
		bytes += problem->residual ? y : 0;
		break;
	case CONV_ADD:
		bytes += x;
		break;
	case CONV_RELU_NORM:
		vectors += 9 * sizeof(float) * problem->c;
		bytes += x * (1 + problem->residual);
		bytes += problem->shortcut != CONV_NO_SHORTCUT ? x : 0;
		if (problem->shortcut == CONV_SHORTCUT_NORM)
			vectors += 9 * sizeof(float) * problem->c;
		break;
	}
	return bytes + vectors;
}

const char *conv_arguments_missing(const struct conv_problem *problem,
				   const struct conv_arguments *arguments)
{
	bool affine = problem->prologue != CONV_PLAIN;
	bool dual = problem->prologue == CONV_DUAL_SCALE_BIAS_ADD_RELU;
	bool statistics = problem->epilogue == CONV_STATISTICS;
	bool norm = problem->epilogue == CONV_RELU_NORM;
	bool norm2 = problem->shortcut == CONV_SHORTCUT_NORM;
	const struct {
		const char *name;
		const void *pointer;
		bool needed;
	} list[] = {
		{"x", arguments->x, true},
		{"w", arguments->w, true},
		{"y", arguments->y, true},
		{"scale", arguments->scale, affine},
		{"bias", arguments->bias, affine},
		{"scale2", arguments->scale2, dual},
		{"bias2", arguments->bias2, dual},
		{"residual", arguments->residual,
		 prologue_adds(problem) || problem->residual || problem->epilogue == CONV_ADD},
		{"activated", arguments->activated, prologue_adds(problem)},
		{"channel_bias", arguments->channel_bias, problem->epilogue == CONV_BIAS},
		{"sum", arguments->sum, statistics},
		{"squares", arguments->squares, statistics},
		{"raw", arguments->raw, norm},
		{"mean", arguments->mean, norm},
		{"deviation", arguments->deviation, norm},
		{"gamma", arguments->gamma, norm},
		{"beta", arguments->beta, norm},
		{"dgamma", arguments->dgamma, norm},
		{"dbeta", arguments->dbeta, norm},
		{"a", arguments->a, norm},
		{"b", arguments->b, norm},
		{"d", arguments->d, norm},
		{"shortcut", arguments->shortcut, problem->shortcut == CONV_SHORTCUT},
		{"raw2", arguments->raw2, norm2},
		{"mean2", arguments->mean2, norm2},
		{"deviation2", arguments->deviation2, norm2},
		{"gamma2", arguments->gamma2, norm2},
		{"beta2", arguments->beta2, norm2},
		{"dgamma2", arguments->dgamma2, norm2},
		{"dbeta2", arguments->dbeta2, norm2},
		{"a2", arguments->a2, norm2},
		{"b2", arguments->b2, norm2},
		{"d2", arguments->d2, norm2},
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		if (list[i].needed &&
		    (!list[i].pointer || (uintptr_t)list[i].pointer % CONV_ALIGNMENT))
			return list[i].name;
	return NULL;
}

void matmul_problem_init(struct matmul_problem *problem)
{
	memset(problem, 0, sizeof(*problem));
}

void matmul_problem_name(const struct matmul_problem *problem, char *ret_text, size_t size)
{
	bool widens = problem->result != problem->element;

	snprintf(ret_text, size, "matmul %ux%u of %u %s%s%s%s%s%s%s", problem->rows,
		 problem->columns, problem->inner, elements[problem->element], widens ? ">" : "",
		 widens ? elements[problem->result] : "",
		 problem->transposed_a ? " transposed-a" : "",
		 problem->transposed_b ? " transposed-b" : "", problem->bias ? " bias" : "",
		 problem->residual ? " residual" : "");
}
