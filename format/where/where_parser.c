#include "format/where/where_parser.h"

#include "format/base/text/nearest.h"
#include "format/where/where_number.h"
#include "format/where/where_text.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An expression whose code has been emitted. */
struct where_expression {
	enum where_type type;
	size_t first, end;    /* byte offsets in the filter */
	const char *class_of; /* as in struct where_binding */
	bool is_class;        /* the name of a class */
	bool is_literal;      /* a text: the last one in where->literals */
};

int where_fail(const struct where_parser *parser, size_t position, const char *format, ...)
{
	struct where_error *error = parser->error;
	va_list arguments;

	if (error) {
		error->position = (int)position;
		va_start(arguments, format);
		vsnprintf(error->text, sizeof(error->text), format, arguments);
		va_end(arguments);
	}
	return -EINVAL;
}

int where_grow(void *array, size_t *room, size_t count, size_t size)
{
	void *old, *grown;

	if (count < *room)
		return 0;
	size_t wanted = count < 8 ? 8 : 2 * count;
	memcpy(&old, array, sizeof(old));
	grown = realloc(old, wanted * size);
	if (!grown)
		return -ENOMEM;
	memcpy(array, &grown, sizeof(grown));
	*room = wanted;
	return 0;
}

/* Arguments of "%.*s" that show a part of the filter. */
#define SHOWN(parser, first, end)                                                                  \
	(int)((end) - (first) < WHERE_SHOWN_MAX ? (end) - (first) : WHERE_SHOWN_MAX),              \
		(parser)->lexer.text + (first)

static const struct where_token *current(const struct where_parser *parser)
{
	return &parser->lexer.token;
}

static int advance(struct where_parser *parser)
{
	struct where_fault fault;
	int r = where_lexer_next(&parser->lexer, &fault);

	return r < 0 ? where_fail(parser, fault.position, "%s", fault.text) : 0;
}

static bool is_token(const struct where_parser *parser, const char *text)
{
	return where_token_is(current(parser), text);
}

/* Returns 1 and advances if the current token is the given one, else 0. */
static int take(struct where_parser *parser, const char *text)
{
	if (!is_token(parser, text))
		return 0;
	int r = advance(parser);
	return r < 0 ? r : 1;
}

static int fail_expected(const struct where_parser *parser, const char *what)
{
	const struct where_token *token = current(parser);

	if (token->kind == WHERE_TOKEN_END)
		return where_fail(parser, token->first, "expected %s, found the end of the filter",
				  what);
	return where_fail(parser, token->first, "expected %s, found %.*s", what,
			  SHOWN(parser, token->first, token->end));
}

static int expect(struct where_parser *parser, const char *mark, const char *what)
{
	int r = take(parser, mark);

	return r == 0 ? fail_expected(parser, what) : r < 0 ? r : 0;
}

/* Appends an operation that changes the number of operands on the stack by `change`. */
static int emit(struct where_parser *parser, struct where_op op, int change)
{
	struct where *where = parser->where;

	if (where->op_count == WHERE_OPERATIONS_MAX)
		return where_fail(parser, current(parser)->first,
				  "the filter has more than %d operations; a list, as in label in "
				  "(1, 2), is one",
				  WHERE_OPERATIONS_MAX);
	int r = where_grow(&where->ops, &parser->op_room, where->op_count, sizeof(*where->ops));
	if (r < 0)
		return r;
	where->ops[where->op_count++] = op;
	parser->height += (unsigned)change;
	assert(parser->height <= WHERE_STACK_MAX);
	return 0;
}

static int add_literal(struct where_parser *parser, const struct where_operand *literal)
{
	struct where *where = parser->where;
	int r = where_grow(&where->literals, &parser->literal_room, where->literal_count,
			   sizeof(*where->literals));
	if (r < 0)
		return r;
	where->literals[where->literal_count++] = *literal;
	return 0;
}

/* Stores the text of the current token; that of a pattern keeps its '\'. */
static int add_text(struct where_parser *parser, bool is_pattern)
{
	const struct where_token *token = current(parser);
	char *to = parser->where->bytes + parser->bytes_used;
	size_t size = token->size;

	if (is_pattern)
		memcpy(to, token->content, size);
	else
		size = where_token_unquote(token, to);
	parser->bytes_used += size;
	struct where_operand literal = {.kind = WHERE_HELD, .text = {to, size}};
	return add_literal(parser, &literal);
}

static int emit_read(struct where_parser *parser, const struct where_binding *binding)
{
	struct where *where = parser->where;
	int r = where_grow(&where->reads, &parser->read_room, where->read_count,
			   sizeof(*where->reads));
	if (r < 0)
		return r;
	where->reads[where->read_count++] = binding->read;
	r = emit(parser, (struct where_op){.code = WHERE_OP_READ, .at = where->read_count - 1}, 1);
	if (r < 0 || !binding->is_presence)
		return r;
	return emit(parser, (struct where_op){.code = WHERE_OP_PRESENT}, 0);
}

static const char *type_name(enum where_type type)
{
	return type == WHERE_NUMBER ? "a number" : type == WHERE_TEXT ? "a text" : "a condition";
}

static int need_number(const struct where_parser *parser, const struct where_expression *expression)
{
	if (expression->type == WHERE_NUMBER)
		return 0;
	return where_fail(parser, expression->first,
			  "%.*s is %s; only numbers can be added, subtracted, multiplied, divided "
			  "and negated",
			  SHOWN(parser, expression->first, expression->end),
			  type_name(expression->type));
}

static int need_condition(const struct where_parser *parser,
			  const struct where_expression *expression)
{
	if (expression->type == WHERE_CONDITION)
		return 0;
	return where_fail(
		parser, expression->first, "%.*s is %s, not a condition; compare it, as in %s",
		SHOWN(parser, expression->first, expression->end), type_name(expression->type),
		expression->type == WHERE_NUMBER ? "width >= 200" : "key like \"a*\"");
}

static int parse_or(struct where_parser *parser, struct where_expression *expression);
static int fail_operator(const struct where_parser *parser);

static int parse_literal(struct where_parser *parser, struct where_expression *expression)
{
	const struct where_token *token = current(parser);
	bool is_text = token->kind == WHERE_TOKEN_TEXT;

	int r = is_text ? add_text(parser, false) : add_literal(parser, &token->number);
	if (r < 0)
		return r;
	expression->type = is_text ? WHERE_TEXT : WHERE_NUMBER;
	expression->is_literal = is_text;
	struct where_op op = {.code = WHERE_OP_LITERAL, .at = parser->where->literal_count - 1};
	r = emit(parser, op, 1);
	return r < 0 ? r : advance(parser);
}

static int parse_call(struct where_parser *parser, const struct where_token *function,
		      struct where_expression *expression)
{
	struct where_binding binding;
	enum where_token_kind kind = current(parser)->kind;

	if (kind != WHERE_TOKEN_WORD && kind != WHERE_TOKEN_QUOTED)
		return fail_expected(parser, "the name of a value");
	int r = where_bind_call(parser, function, &binding);
	r = r < 0 ? r : emit_read(parser, &binding);
	r = r < 0 ? r : advance(parser);
	if (r < 0)
		return r;
	expression->type = binding.type;
	expression->is_class = binding.type == WHERE_TEXT;
	return expect(parser, ")", "\")\" after the name of a value");
}

/* Parses a name, or a call of a function. */
static int parse_name(struct where_parser *parser, struct where_expression *expression)
{
	const struct where_lexer before = parser->lexer;
	struct where_binding binding;

	int r = advance(parser);
	if (r < 0)
		return r;
	if (before.token.kind == WHERE_TOKEN_WORD && is_token(parser, "(")) {
		r = advance(parser);
		return r < 0 ? r : parse_call(parser, &before.token, expression);
	}
	parser->lexer = before;
	r = where_bind_name(parser, &binding);
	r = r < 0 ? r : emit_read(parser, &binding);
	if (r < 0)
		return r;
	expression->type = binding.type;
	expression->class_of = binding.class_of;
	expression->is_class = binding.read.function == WHERE_CLASS;
	return advance(parser);
}

static int parse_parentheses(struct where_parser *parser, struct where_expression *expression)
{
	size_t first = current(parser)->first;

	if (parser->depth == WHERE_DEPTH_MAX)
		return where_fail(parser, first, "more than %d parentheses are open",
				  WHERE_DEPTH_MAX);
	parser->depth++;
	int r = advance(parser);
	r = r < 0 ? r : parse_or(parser, expression);
	if (r == 0 && !is_token(parser, ")"))
		r = fail_operator(parser);
	parser->depth--;
	return r < 0 ? r : advance(parser);
}

static int parse_primary(struct where_parser *parser, struct where_expression *expression)
{
	switch (current(parser)->kind) {
	case WHERE_TOKEN_NUMBER:
	case WHERE_TOKEN_TEXT:
		return parse_literal(parser, expression);
	case WHERE_TOKEN_QUOTED:
		return parse_name(parser, expression);
	case WHERE_TOKEN_WORD:
		if (!where_is_keyword(current(parser)->content, current(parser)->size))
			return parse_name(parser, expression);
		break;
	case WHERE_TOKEN_MARK:
		if (is_token(parser, "("))
			return parse_parentheses(parser, expression);
		break;
	case WHERE_TOKEN_END:
		break;
	}
	return fail_expected(parser, "a name, a number or a text");
}

/* Takes any number of '-' and '+'. Returns 1 if the result is to be negated, else 0. */
static int take_signs(struct where_parser *parser, bool *ret_any)
{
	int negative = 0;

	*ret_any = false;
	while (is_token(parser, "-") || is_token(parser, "+")) {
		negative ^= is_token(parser, "-");
		*ret_any = true;
		int r = advance(parser);
		if (r < 0)
			return r;
	}
	return negative;
}

static int parse_unary(struct where_parser *parser, struct where_expression *expression)
{
	size_t first = current(parser)->first;
	bool has_sign;

	*expression = (struct where_expression){.first = first};
	int negative = take_signs(parser, &has_sign);
	if (negative < 0)
		return negative;
	expression->first = current(parser)->first;
	int r = parse_primary(parser, expression);
	expression->end = parser->lexer.last_end;
	if (r == 0 && has_sign)
		r = need_number(parser, expression);
	expression->first = first;
	if (r < 0 || !has_sign)
		return r;
	expression->class_of = NULL;
	return negative ? emit(parser, (struct where_op){.code = WHERE_OP_NEGATE}, 0) : 0;
}

struct infix {
	const char *mark;
	enum where_code code;
};

typedef int parse_operand(struct where_parser *parser, struct where_expression *expression);

/* Parses operands with operators of one precedence between them, from left to right. */
static int parse_arithmetic(struct where_parser *parser, const struct infix infix[2],
			    parse_operand *parse, struct where_expression *expression)
{
	struct where_expression right;

	int r = parse(parser, expression);
	while (r == 0 && (is_token(parser, infix[0].mark) || is_token(parser, infix[1].mark))) {
		enum where_code code = infix[is_token(parser, infix[1].mark)].code;

		r = need_number(parser, expression);
		r = r < 0 ? r : advance(parser);
		r = r < 0 ? r : parse(parser, &right);
		r = r < 0 ? r : need_number(parser, &right);
		r = r < 0 ? r : emit(parser, (struct where_op){.code = (uint8_t)code}, -1);
		expression->end = parser->lexer.last_end;
		expression->class_of = NULL;
	}
	return r;
}

static int parse_product(struct where_parser *parser, struct where_expression *expression)
{
	static const struct infix infix[] = {{"*", WHERE_OP_MULTIPLY}, {"/", WHERE_OP_DIVIDE}};

	return parse_arithmetic(parser, infix, parse_unary, expression);
}

static int parse_sum(struct where_parser *parser, struct where_expression *expression)
{
	static const struct infix infix[] = {{"+", WHERE_OP_ADD}, {"-", WHERE_OP_SUBTRACT}};

	return parse_arithmetic(parser, infix, parse_product, expression);
}

/* Returns the relation that the current token stands for, 0 if it is none. */
static unsigned token_relation(const struct where_parser *parser)
{
	static const struct {
		const char *mark;
		unsigned relation;
	} relations[] = {
		{"==", WHERE_EQUAL},
		{"=", WHERE_EQUAL},
		{"!=", WHERE_LESS | WHERE_GREATER},
		{"<", WHERE_LESS},
		{"<=", WHERE_LESS | WHERE_EQUAL},
		{">", WHERE_GREATER},
		{">=", WHERE_GREATER | WHERE_EQUAL},
	};

	for (size_t i = 0; i < sizeof(relations) / sizeof(relations[0]); i++)
		if (is_token(parser, relations[i].mark))
			return relations[i].relation;
	return 0;
}

/* Reports that two operands cannot be compared. */
static int fail_types(const struct where_parser *parser, const struct where_expression *left,
		      const struct where_expression *right)
{
	const char *class_of = right->type == WHERE_TEXT ? left->class_of : right->class_of;
	char written[WHERE_WRITTEN_SIZE];

	if (left->type == WHERE_CONDITION || right->type == WHERE_CONDITION)
		return where_fail(parser, left->first,
				  "conditions cannot be compared with each other; connect them by "
				  "and, or and not");
	return where_fail(parser, right->first, "%.*s is %s, and %.*s is %s%s%s%s",
			  SHOWN(parser, left->first, left->end), type_name(left->type),
			  SHOWN(parser, right->first, right->end), type_name(right->type),
			  class_of ? "; the name of the class is class("
				   : "; numbers compare with numbers, texts with texts",
			  class_of ? where_written_name(class_of, written) : "",
			  class_of ? ")" : "");
}

/* Remembers the text that a class is compared with for equality. */
static int add_class(struct where_parser *parser, const struct where_expression *left,
		     const struct where_expression *right, uint32_t left_literals)
{
	const struct where *where = parser->where;

	if (left->is_class && right->is_literal)
		return where_classes_add(parser, &where->literals[where->literal_count - 1].text,
					 right->first);
	if (right->is_class && left->is_literal)
		return where_classes_add(parser, &where->literals[left_literals - 1].text,
					 left->first);
	return 0;
}

static int parse_relation(struct where_parser *parser, const struct where_expression *left)
{
	unsigned relation = token_relation(parser);
	uint32_t left_literals = parser->where->literal_count;
	struct where_expression right;

	int r = advance(parser);
	r = r < 0 ? r : parse_sum(parser, &right);
	if (r < 0)
		return r;
	if (left->type != right.type || left->type == WHERE_CONDITION)
		return fail_types(parser, left, &right);
	if (token_relation(parser))
		return where_fail(parser, current(parser)->first,
				  "comparisons do not chain; write a < b and b < c");
	if (relation == WHERE_EQUAL || relation == (WHERE_LESS | WHERE_GREATER))
		r = add_class(parser, left, &right, left_literals);
	if (r < 0)
		return r;
	struct where_op op = {
		.code = left->type == WHERE_TEXT ? WHERE_OP_COMPARE_TEXT : WHERE_OP_COMPARE,
		.relation = (uint8_t)relation,
	};
	return emit(parser, op, -1);
}

/* Parses a literal of a list. */
static int parse_element(struct where_parser *parser, const struct where_expression *left)
{
	struct where_expression element = {.first = current(parser)->first, .type = WHERE_NUMBER};
	struct where *where = parser->where;
	bool has_sign;

	int negative = take_signs(parser, &has_sign);
	if (negative < 0)
		return negative;
	const struct where_token *token = current(parser);
	if (token->kind == WHERE_TOKEN_TEXT && !has_sign)
		element.type = WHERE_TEXT;
	else if (token->kind != WHERE_TOKEN_NUMBER)
		return fail_expected(parser, "a number or a text in quotes");
	element.end = token->end;
	if (left->type != element.type)
		return fail_types(parser, left, &element);
	struct where_operand number = token->number;
	if (negative)
		number = where_number_negate(&number);
	int r = element.type == WHERE_TEXT ? add_text(parser, false) : add_literal(parser, &number);
	if (r == 0 && left->is_class)
		r = where_classes_add(parser, &where->literals[where->literal_count - 1].text,
				      element.first);
	return r < 0 ? r : advance(parser);
}

static int compare_numbers(const void *a, const void *b)
{
	return where_number_compare(a, b);
}

static int compare_texts(const void *a, const void *b)
{
	const struct where_operand *x = a, *y = b;

	return where_text_order(&x->text, &y->text);
}

static int parse_in(struct where_parser *parser, const struct where_expression *left)
{
	struct where *where = parser->where;
	struct where_op op = {.at = where->literal_count};
	int more = 1;

	int r = advance(parser);
	r = r < 0 ? r : expect(parser, "(", "\"(\" and a list, as in label in (1, 5)");
	while (r == 0 && more > 0) {
		r = parse_element(parser, left);
		more = r < 0 ? 0 : take(parser, ",");
	}
	r = r < 0 ? r : more;
	r = r < 0 ? r : expect(parser, ")", "\",\" or \")\"");
	if (r < 0)
		return r;
	bool is_text = left->type == WHERE_TEXT;
	op.code = is_text ? WHERE_OP_IN_TEXT : WHERE_OP_IN;
	op.count = where->literal_count - op.at;
	qsort(where->literals + op.at, op.count, sizeof(*where->literals),
	      is_text ? compare_texts : compare_numbers);
	return emit(parser, op, 0);
}

static int parse_like(struct where_parser *parser, const struct where_expression *left)
{
	int r = advance(parser);
	if (r < 0)
		return r;
	const struct where_token *token = current(parser);
	if (left->type != WHERE_TEXT)
		return where_fail(parser, left->first,
				  "%.*s is %s; only a text can be like a pattern",
				  SHOWN(parser, left->first, left->end), type_name(left->type));
	if (token->kind != WHERE_TOKEN_TEXT)
		return fail_expected(parser, "a pattern in quotes, such as \"train/*\"");
	if (token->size > WHERE_PATTERN_MAX)
		return where_fail(parser, token->first, "the pattern has more than %d bytes",
				  WHERE_PATTERN_MAX);
	r = add_text(parser, true);
	r = r < 0 ? r : advance(parser);
	struct where_op op = {.code = WHERE_OP_LIKE, .at = parser->where->literal_count - 1};
	return r < 0 ? r : emit(parser, op, 0);
}

static int parse_comparison(struct where_parser *parser, struct where_expression *expression)
{
	int r = parse_sum(parser, expression);
	if (r < 0)
		return r;
	int negated = take(parser, "not");
	if (negated < 0)
		return negated;
	if (is_token(parser, "in"))
		r = parse_in(parser, expression);
	else if (is_token(parser, "like"))
		r = parse_like(parser, expression);
	else if (negated)
		return fail_expected(parser, "\"in\" or \"like\" after \"not\"");
	else if (token_relation(parser))
		r = parse_relation(parser, expression);
	else
		return 0;
	if (r == 0 && negated)
		r = emit(parser, (struct where_op){.code = WHERE_OP_NOT}, 0);
	*expression = (struct where_expression){
		.type = WHERE_CONDITION,
		.first = expression->first,
		.end = parser->lexer.last_end,
	};
	return r;
}

static int parse_not(struct where_parser *parser, struct where_expression *expression)
{
	size_t first = current(parser)->first;
	bool any = false, negated = false;

	while (is_token(parser, "not")) {
		any = true;
		negated = !negated;
		int r = advance(parser);
		if (r < 0)
			return r;
	}
	int r = parse_comparison(parser, expression);
	r = r == 0 && any ? need_condition(parser, expression) : r;
	expression->first = first;
	if (r < 0 || !negated)
		return r;
	return emit(parser, (struct where_op){.code = WHERE_OP_NOT}, 0);
}

/*
 * Parses conditions connected by one word. After each but the last, `skip` jumps to the end if the
 * result is decided.
 */
static int parse_connected(struct where_parser *parser, const char *word, enum where_code skip,
			   enum where_code code, parse_operand *parse,
			   struct where_expression *expression)
{
	struct where *where = parser->where;
	struct where_expression right;
	uint32_t last =
		UINT32_MAX; /* jump whose target is not known yet; each has the one before */

	int r = parse(parser, expression);
	while (r == 0 && is_token(parser, word)) {
		struct where_op jump = {.code = (uint8_t)skip, .at = last};

		last = where->op_count;
		r = need_condition(parser, expression);
		r = r < 0 ? r : emit(parser, jump, 0);
		r = r < 0 ? r : advance(parser);
		r = r < 0 ? r : parse(parser, &right);
		r = r < 0 ? r : need_condition(parser, &right);
		r = r < 0 ? r : emit(parser, (struct where_op){.code = (uint8_t)code}, -1);
		expression->end = parser->lexer.last_end;
	}
	while (r == 0 && last != UINT32_MAX) {
		uint32_t before = where->ops[last].at;

		where->ops[last].at = where->op_count;
		last = before;
	}
	return r;
}

static int parse_and(struct where_parser *parser, struct where_expression *expression)
{
	return parse_connected(parser, "and", WHERE_OP_SKIP_FALSE, WHERE_OP_AND, parse_not,
			       expression);
}

static int parse_or(struct where_parser *parser, struct where_expression *expression)
{
	return parse_connected(parser, "or", WHERE_OP_SKIP_TRUE, WHERE_OP_OR, parse_and,
			       expression);
}

/* Reports a token where an operator, or the end of the filter or of parentheses, was expected. */
static int fail_operator(const struct where_parser *parser)
{
	static const char *const words[] = {"and", "or", "in", "like", "not"};
	static const struct {
		const char *token, *hint;
	} hints[] = {
		{"is", "has(NAME) tells whether a sample has a value"},
		{"between", "write a <= x and x <= b"},
		{")", "this parenthesis was not opened"},
	};
	const struct where_token *token = current(parser);
	const char *open = parser->depth ? "an operator or \")\"" : "an operator or the end";
	char word[8] = "";
	struct nearest nearest = nearest_to(word);

	for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
		if (is_token(parser, hints[i].token))
			return where_fail(parser, token->first, "%s", hints[i].hint);
	if (token->kind == WHERE_TOKEN_WORD && token->size < sizeof(word))
		memcpy(word, token->content, token->size);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		nearest_offer(&nearest, words[i]);
	if (token->kind == WHERE_TOKEN_WORD && nearest.meant)
		return where_fail(parser, token->first, "there is no operator %s; did you mean %s?",
				  word, nearest.meant);
	return fail_expected(parser, open);
}

static int parse_filter(struct where_parser *parser)
{
	struct where_expression expression;

	int r = advance(parser);
	r = r < 0 ? r : parse_or(parser, &expression);
	if (r == 0 && current(parser)->kind != WHERE_TOKEN_END)
		r = fail_operator(parser);
	r = r < 0 ? r : need_condition(parser, &expression);
	return r < 0 ? r : where_classes_check(parser);
}

int where_parse(const char *text, const struct packimg *dataset, struct where **ret_where,
		struct where_error *error)
{
	struct where_parser parser = {.lexer.text = text, .dataset = dataset, .error = error};
	size_t size = strnlen(text, WHERE_TEXT_MAX + 1);

	if (size > WHERE_TEXT_MAX)
		return where_fail(&parser, WHERE_TEXT_MAX, "the filter has more than %d bytes",
				  WHERE_TEXT_MAX);
	parser.where = calloc(1, sizeof(*parser.where));
	if (!parser.where)
		return -ENOMEM;
	parser.where->bytes = malloc(size + 1);
	int r = parser.where->bytes ? parse_filter(&parser) : -ENOMEM;
	free(parser.classes);
	if (r < 0) {
		where_free(parser.where);
		return r;
	}
	*ret_where = parser.where;
	return 0;
}
