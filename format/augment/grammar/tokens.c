#include "format/augment/grammar/parser.h"

#include <stdio.h>
#include <string.h>

void parser_skip_space(struct parser *parser)
{
	while (parser->text[parser->at] && strchr(" \t\r\n", parser->text[parser->at]))
		parser->at++;
}

bool parser_take_mark(struct parser *parser, char mark)
{
	if (parser->text[parser->at] != mark)
		return false;
	parser->at++;
	parser_skip_space(parser);
	return true;
}

bool parser_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool parser_is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || parser_is_digit(c);
}

int parser_take_word(struct parser *parser, char word[NAME_MAX_SIZE])
{
	const char *start = parser->text + parser->at;
	int size = 0;

	while (parser_is_word(start[size]))
		size++;
	int kept = size < NAME_MAX_SIZE ? size : NAME_MAX_SIZE - 1;
	memcpy(word, start, (size_t)kept);
	word[kept] = 0;
	parser->at += size;
	return size;
}

const char *parser_found(const struct parser *parser, char buffer[FOUND_MAX])
{
	const char *start = parser->text + parser->at;
	int size = 0;

	if (!*start)
		return "the end of the text";
	if ((unsigned char)*start < ' ' || (unsigned char)*start > '~') {
		snprintf(buffer, FOUND_MAX, "byte 0x%02x", (unsigned char)*start);
		return buffer;
	}
	while (size < 20 && parser_is_word(start[size]))
		size++;
	snprintf(buffer, FOUND_MAX, "'%.*s'", size ? size : 1, start);
	return buffer;
}

bool parser_take_number(struct parser *parser, double *ret_number)
{
	const char *start = parser->text + parser->at, *p = start;
	uint64_t digits = 0;
	int exponent = 0, count = 0;
	bool negative = *p == '-';

	if (*p == '-' || *p == '+')
		p++;
	for (bool point = false; parser_is_digit(*p) || (*p == '.' && !point); p++) {
		if (*p == '.') {
			point = true;
			continue;
		}
		count++;
		if (digits < 10000000000000000) {
			digits = digits * 10 + (uint64_t)(*p - '0');
			exponent -= point;
		} else {
			exponent += !point;
		}
	}
	if (count == 0)
		return false;
	const char *e = p + 1;

	if ((*p == 'e' || *p == 'E') &&
	    (parser_is_digit(*e) || ((*e == '-' || *e == '+') && parser_is_digit(e[1])))) {
		bool down = *e == '-';
		int power = 0;

		for (e += *e == '-' || *e == '+'; parser_is_digit(*e); e++)
			power = power < 1000 ? power * 10 + (*e - '0') : power;
		exponent += down ? -power : power;
		p = e;
	}
	double number = (double)digits;

	for (; exponent > 0 && number < 1e300; exponent--)
		number *= 10;
	for (; exponent < 0 && number > 0; exponent += 22) {
		double power = 1;

		for (int i = 0; i < 22 && i < -exponent; i++)
			power *= 10;
		number /= power;
		if (exponent >= -22)
			break;
	}
	parser->at += (int)(p - start);
	*ret_number = negative ? -number : number;
	return true;
}

int64_t parser_take_integer(struct parser *parser)
{
	int64_t number = 0;

	if (!parser_is_digit(parser->text[parser->at]))
		return -1;
	for (; parser_is_digit(parser->text[parser->at]); parser->at++)
		number = number < INT64_MAX / 10 - 10
				 ? number * 10 + (parser->text[parser->at] - '0')
				 : INT64_MAX;
	return number;
}
