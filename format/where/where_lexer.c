#include "format/where/where_lexer.h"

#include "format/base/text/number.h"
#include "format/where/where_number.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { NUMBER_MAX = 128 }; /* bytes of a number, terminator included */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_plain(char c)
{
	return is_letter(c) || is_digit(c) || c == '.';
}

static int lexer_fail(struct where_fault *fault, size_t position, const char *text)
{
	*fault = (struct where_fault){position, text};
	return -EINVAL;
}

static size_t skip_digits(const char *text, size_t at)
{
	while (is_digit(text[at]))
		at++;
	return at;
}

static bool whole_number(const char *text, uint64_t *ret_value)
{
	uint64_t value = 0;

	for (; *text; text++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return false;
	*ret_value = value;
	return true;
}

static int lex_number(struct where_lexer *lexer, struct where_fault *fault)
{
	struct where_token *token = &lexer->token;
	const char *text = lexer->text;
	size_t end = skip_digits(text, lexer->at);
	bool whole = text[end] != '.';
	char copy[NUMBER_MAX];
	uint64_t integer;
	double real;

	if (!whole)
		end = skip_digits(text, end + 1);
	if (text[end] == 'e' || text[end] == 'E') {
		whole = false;
		end += 1 + (text[end + 1] == '+' || text[end + 1] == '-');
		if (!is_digit(text[end]))
			return lexer_fail(fault, lexer->at,
					  "a number has no digit in its exponent");
		end = skip_digits(text, end);
	}
	if (is_plain(text[end]))
		return lexer_fail(fault, lexer->at,
				  "a number is decimal, such as 200, -1.5 or 1e6; names that begin "
				  "with a digit are written in backquotes");
	size_t size = end - lexer->at;
	if (size >= sizeof(copy))
		return lexer_fail(fault, lexer->at, "a number is longer than 127 characters");
	memcpy(copy, text + lexer->at, size);
	copy[size] = 0;
	if (whole && whole_number(copy, &integer)) {
		token->number = where_unsigned(integer);
	} else if (number_double(copy, &real) == 0 && isfinite(real)) {
		token->number = where_real(real);
	} else {
		return lexer_fail(fault, lexer->at, "a number is too large");
	}
	token->kind = WHERE_TOKEN_NUMBER;
	lexer->at = end;
	return 0;
}

static int lex_quoted(struct where_lexer *lexer, struct where_fault *fault)
{
	struct where_token *token = &lexer->token;
	const char quote = lexer->text[lexer->at], *at = lexer->text + lexer->at + 1;

	token->kind = quote == '`' ? WHERE_TOKEN_QUOTED : WHERE_TOKEN_TEXT;
	token->content = at;
	while (*at && *at != quote)
		at += at[0] == '\\' && at[1] ? 2 : 1;
	if (!*at)
		return lexer_fail(fault, lexer->at,
				  quote == '`' ? "a backquote has no counterpart; names in "
						 "backquotes end with another one"
					       : "a quote has no counterpart; text ends with the "
						 "quote with which it begins");
	token->size = (size_t)(at - token->content);
	lexer->at = (size_t)(at + 1 - lexer->text);
	return 0;
}

static void lex_word(struct where_lexer *lexer)
{
	lexer->token.kind = WHERE_TOKEN_WORD;
	while (is_plain(lexer->text[lexer->at]))
		lexer->at++;
}

/* Returns the size of the mark at the start of a text, 0 if there is none. */
static size_t mark_size(const char *text)
{
	static const char *const marks[] = {"==", "!=", "<=", ">=", "=", "<", ">",
					    "+",  "-",  "*",  "/",  "(", ")", ","};

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		if (strncmp(text, marks[i], strlen(marks[i])) == 0)
			return strlen(marks[i]);
	return 0;
}

static int lex_mark(struct where_lexer *lexer, struct where_fault *fault)
{
	const char *text = lexer->text + lexer->at;
	size_t size = mark_size(text);

	if (size == 0)
		return lexer_fail(fault, lexer->at,
				  *text == '&'   ? "\"and\" connects conditions"
				  : *text == '|' ? "\"or\" connects conditions"
				  : *text == '!' ? "\"not\" negates a condition"
				  : *text == '%' ? "there is no operator %"
						 : "a character that no filter has outside of "
						   "quotes; names with it are written in "
						   "backquotes, texts in quotes");
	lexer->token.kind = WHERE_TOKEN_MARK;
	lexer->at += size;
	return 0;
}

int where_lexer_next(struct where_lexer *lexer, struct where_fault *ret_fault)
{
	const char *text = lexer->text;
	struct where_token *token = &lexer->token;
	int r = 0;

	lexer->last_end = token->end;
	while (text[lexer->at] && strchr(" \t\r\n", text[lexer->at]))
		lexer->at++;
	char c = text[lexer->at];
	*token = (struct where_token){.kind = WHERE_TOKEN_END, .first = lexer->at};
	if (is_digit(c) || (c == '.' && is_digit(text[lexer->at + 1])))
		r = lex_number(lexer, ret_fault);
	else if (c == '"' || c == '\'' || c == '`')
		r = lex_quoted(lexer, ret_fault);
	else if (is_letter(c))
		lex_word(lexer);
	else if (c)
		r = lex_mark(lexer, ret_fault);
	token->end = lexer->at;
	if (!token->content) {
		token->content = text + token->first;
		token->size = token->end - token->first;
	}
	return r;
}

bool where_token_is(const struct where_token *token, const char *text)
{
	return (token->kind == WHERE_TOKEN_WORD || token->kind == WHERE_TOKEN_MARK) &&
	       token->size == strlen(text) && memcmp(token->content, text, token->size) == 0;
}

bool where_is_keyword(const char *word, size_t size)
{
	static const char *const keywords[] = {"and", "or", "not", "in", "like"};

	for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++)
		if (size == strlen(keywords[i]) && memcmp(word, keywords[i], size) == 0)
			return true;
	return false;
}

size_t where_token_unquote(const struct where_token *token, char *to)
{
	size_t size = 0;

	for (size_t i = 0; i < token->size; i++) {
		if (token->content[i] == '\\')
			i++;
		to[size++] = token->content[i];
	}
	return size;
}
