#include "format/where.h"

#include "format/where/where_number.h"
#include "format/where/where_read.h"

#include <errno.h>
#include <stdlib.h>

void where_free(struct where *where)
{
	if (!where)
		return;
	free(where->ops);
	free(where->literals);
	free(where->reads);
	free(where->bytes);
	free(where);
}

static enum where_kind truth(bool holds)
{
	return holds ? WHERE_TRUE : WHERE_FALSE;
}

static bool relation_holds(const struct where_op *op, int order)
{
	return op->relation >> (order + 1) & 1;
}

/* Operations on two operands. The result replaces the left one. */
static int where_binary(const struct where_view *view, const struct where_op *op,
			struct where_operand *left, const struct where_operand *right)
{
	bool absent = left->kind == WHERE_ABSENT || right->kind == WHERE_ABSENT;
	int order;

	switch (op->code) {
	case WHERE_OP_AND:
		left->kind = left->kind < right->kind ? left->kind : right->kind;
		return 0;
	case WHERE_OP_OR:
		left->kind = left->kind > right->kind ? left->kind : right->kind;
		return 0;
	case WHERE_OP_COMPARE:
		left->kind = absent ? WHERE_ABSENT
				    : truth(relation_holds(op, where_number_compare(left, right)));
		return 0;
	case WHERE_OP_COMPARE_TEXT:
		if (!absent) {
			bool only_equality =
				!(op->relation & WHERE_LESS) == !(op->relation & WHERE_GREATER);
			int r = where_text_compare(&view->sample, left, right, only_equality,
						   &order);
			if (r < 0)
				return r;
		}
		left->kind = absent ? WHERE_ABSENT : truth(relation_holds(op, order));
		return 0;
	default:
		*left = where_number_compute(op->code, left, right);
		return 0;
	}
}

/* Operations on one operand, which the result replaces. */
static int where_unary(const struct where *where, const struct where_view *view,
		       const struct where_op *op, struct where_operand *top)
{
	const struct where_operand *literals = where->literals;
	bool holds;
	int r = 0;

	if (op->code == WHERE_OP_PRESENT) {
		top->kind = truth(top->kind != WHERE_ABSENT);
		return 0;
	}
	if (top->kind == WHERE_ABSENT)
		return 0;
	switch (op->code) {
	case WHERE_OP_NEGATE:
		*top = where_number_negate(top);
		return 0;
	case WHERE_OP_NOT:
		top->kind = truth(top->kind == WHERE_FALSE);
		return 0;
	case WHERE_OP_IN:
		holds = where_number_in(top, literals + op->at, op->count);
		break;
	case WHERE_OP_IN_TEXT:
		r = where_text_in(&view->sample, top, literals + op->at, op->count, &holds);
		break;
	default: /* WHERE_OP_LIKE */
		r = where_text_like(&view->sample, top, &literals[op->at].text, &holds);
		break;
	}
	if (r < 0)
		return r;
	top->kind = truth(holds);
	return 0;
}

static bool never(const void *context)
{
	(void)context;
	return false;
}

int where_match(const struct where *where, const struct packimg *dataset, uint64_t index)
{
	return where_match_until(where, dataset, index, never, NULL);
}

int where_match_until(const struct where *where, const struct packimg *dataset, uint64_t index,
		      bool (*stopped)(const void *context), const void *context)
{
	struct where_operand stack[WHERE_STACK_MAX];
	struct where_operand *end = stack; /* after the top */
	struct where_view view;
	int r = 0;

	if (index >= packimg_count(dataset))
		return -ERANGE;
	view.sample = (struct where_sample){dataset, index};
	view.has_record = false;
	for (uint32_t i = 0; i < where->op_count; i++) {
		const struct where_op *op = &where->ops[i];

		switch (op->code) {
		case WHERE_OP_LITERAL:
			*end++ = where->literals[op->at];
			break;
		case WHERE_OP_READ:
			r = where_read_value(&view, &where->reads[op->at], end++);
			break;
		case WHERE_OP_SKIP_FALSE:
		case WHERE_OP_SKIP_TRUE:
			if (end[-1].kind == truth(op->code == WHERE_OP_SKIP_TRUE))
				i = op->at - 1;
			break;
		case WHERE_OP_PRESENT:
		case WHERE_OP_NEGATE:
		case WHERE_OP_IN:
		case WHERE_OP_IN_TEXT:
		case WHERE_OP_NOT:
			r = where_unary(where, &view, op, end - 1);
			break;
		case WHERE_OP_LIKE:
			r = stopped(context) ? -ECANCELED : where_unary(where, &view, op, end - 1);
			break;
		default:
			end--;
			r = where_binary(&view, op, end - 1, end);
			break;
		}
		if (r < 0)
			return r;
	}
	return end[-1].kind == WHERE_TRUE;
}
