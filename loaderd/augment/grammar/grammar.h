/*
 * The pipeline grammar of transform.h: text to steps. Called by transform_parse alone; pure, any
 * thread. Positions in errors are bytes from the start of the text.
 */
#pragma once

struct transform;
struct transform_error;

/*
 * Fills transform, which holds the defaults. 0; -EINVAL with what was expected and where; -E2BIG
 * beyond a limit. error may be NULL.
 */
int grammar_parse(const char *text, struct transform *transform, struct transform_error *error);
