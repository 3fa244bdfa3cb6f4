/* Replies in the making, of supervisor and worker. What they point to is the caller's. */
#pragma once

#include "proto/feed.pb-c.h"

/* A reply that is such a message: its constant, and its name in the union. */
#define REPLY(CONSTANT, name, message)                                                             \
	{                                                                                          \
		.base = PROTOBUF_C_MESSAGE_INIT(&loaderd__reply__descriptor),                      \
		.kind_case = LOADERD__REPLY__KIND_##CONSTANT, .name = (message)                    \
	}

/* An error of no field of the request. code: a positive errno. */
Loaderd__Error reply_error(int code, const char *text);
