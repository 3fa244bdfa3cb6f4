/* Builds protocol replies, for supervisor and worker. Replies point to the caller's data. */
#pragma once

#include "proto/feed.pb-c.h"

/* Initialises a Loaderd__Reply: the constant of its kind, its name in the union, the message. */
#define REPLY(CONSTANT, name, message)                                                             \
	{                                                                                          \
		.base = PROTOBUF_C_MESSAGE_INIT(&loaderd__reply__descriptor),                      \
		.kind_case = LOADERD__REPLY__KIND_##CONSTANT, .name = (message)                    \
	}

/* An error that concerns no particular field of the request. code: a positive errno. */
Loaderd__Error reply_error(int code, const char *text);
