/* Divides the text of a filter into tokens. One thread. */
#pragma once

#include "format/where/where_code.h"

enum where_token_kind {
	WHERE_TOKEN_END,
	WHERE_TOKEN_NUMBER,
	WHERE_TOKEN_TEXT,   /* a literal in quotes; `content` is without them */
	WHERE_TOKEN_WORD,   /* a name or a keyword */
	WHERE_TOKEN_QUOTED, /* a name in backquotes; `content` is without them */
	WHERE_TOKEN_MARK,   /* an operator, a parenthesis or a comma */
};

struct where_token {
	enum where_token_kind kind;
	size_t first, end; /* byte offsets in the filter */
	const char *content;
	size_t size;                 /* of the content */
	struct where_operand number; /* if a number */
};

struct where_lexer {
	const char *text; /* terminated */
	size_t at;
	struct where_token token; /* the current one */
	size_t last_end;          /* end of the token before it */
};

/* What is wrong with a text, as a sentence, and where. */
struct where_fault {
	size_t position;
	const char *text;
};

/* Advances to the next token. -EINVAL and a fault if there is none; then the lexer is not used. */
int where_lexer_next(struct where_lexer *lexer, struct where_fault *ret_fault);
/* True if the current token is this word without quotes, or this mark. */
bool where_token_is(const struct where_token *token, const char *text);
/* True for and, or, not, in and like. */
bool where_is_keyword(const char *word, size_t size);
/* Copies the content of a text or a quoted name without the '\' that quote bytes. Returns its size.
 */
size_t where_token_unquote(const struct where_token *token, char *to);
