/*
 * The code of a parsed filter: operations for a stack of operands, in postfix order, with the
 * literals and the values that they read. The parser (where_parser.c) writes it, where_match() runs
 * it. Immutable after parsing, owned by struct where.
 */
#pragma once

#include "format/base/schema.h"
#include "format/where.h"

/* Static type of an expression. */
enum where_type {
	WHERE_CONDITION,
	WHERE_NUMBER,
	WHERE_TEXT,
};

/* The first three are ordered: `and` is the smaller, `or` the larger, `not` the opposite. */
enum where_kind {
	WHERE_FALSE,
	WHERE_ABSENT, /* no value, or a condition that is unknown */
	WHERE_TRUE,
	WHERE_INTEGER, /* int64 */
	WHERE_LARGE,   /* an integer from 2^63 to 2^64 - 1 */
	WHERE_REAL,    /* never NaN, which is absent */
	WHERE_HELD,    /* text in memory that no other process can change */
	WHERE_STORED,  /* text of a sample, to be read by packimg_read() */
};

struct where_text {
	const char *bytes; /* not terminated */
	size_t size;
};

struct where_operand {
	enum where_kind kind;
	union {
		int64_t integer;
		uint64_t large;
		double real;
		struct where_text text;
	};
};

/* Bits of a relation: the orders of two operands for which it holds. */
enum where_relation {
	WHERE_LESS = 1,
	WHERE_EQUAL = 2,
	WHERE_GREATER = 4,
};

enum where_code {
	WHERE_OP_LITERAL, /* pushes literals[at] */
	WHERE_OP_READ,    /* pushes a value of the sample: reads[at] */
	WHERE_OP_PRESENT, /* whether the top is present */
	WHERE_OP_NEGATE,  /* -top */
	WHERE_OP_ADD,     /* this and the next three replace the two upper operands */
	WHERE_OP_SUBTRACT,
	WHERE_OP_MULTIPLY,
	WHERE_OP_DIVIDE,
	WHERE_OP_COMPARE,      /* two numbers; `relation` */
	WHERE_OP_COMPARE_TEXT, /* two texts; `relation` */
	WHERE_OP_IN,           /* number: literals[at ..] is a sorted list of `count` */
	WHERE_OP_IN_TEXT,      /* text: same */
	WHERE_OP_LIKE,         /* text: literals[at] is the pattern */
	WHERE_OP_NOT,
	WHERE_OP_AND,
	WHERE_OP_OR,
	WHERE_OP_SKIP_FALSE, /* continues at operation `at` if the top is false */
	WHERE_OP_SKIP_TRUE,
};

struct where_op {
	uint8_t code;     /* enum where_code */
	uint8_t relation; /* enum where_relation */
	uint32_t at, count;
};

/* What is read of a value. */
enum where_function {
	WHERE_VALUE, /* a number or a text */
	WHERE_CLASS, /* the name of the class that is the value */
	WHERE_HAS,
	WHERE_COUNT, /* rows or objects; bytes of values without an element */
	WHERE_WIDTH,
	WHERE_HEIGHT,
};

struct where_read {
	enum where_function function;
	enum schema_store store;
	uint16_t number;       /* of the image or the field */
	uint16_t value;        /* in the schema, if in a column */
	bool is_text, is_real; /* type of a value in a column */
	bool is_unsigned;      /* u64, stored as the int64 of the same bits */
	bool has_objects;      /* polygons of objects */
	size_t row_size;       /* bytes */
};

enum {
	/* each level of parentheses holds an operand of or, and, a comparison, a sum, a product */
	WHERE_STACK_MAX = 5 * (WHERE_DEPTH_MAX + 1) + 1,
};

struct where {
	struct where_op *ops;
	struct where_operand *literals;
	struct where_read *reads;
	char *bytes; /* of all texts */
	uint32_t op_count, literal_count, read_count;
};
