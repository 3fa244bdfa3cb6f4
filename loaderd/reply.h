/* Builds protocol replies, for supervisor and worker. Replies point to the caller's data. */
#pragma once

#include "proto/feed.pb-c.h"

/*
 * Initialiser of a Loaderd__Reply. CONSTANT: suffix of its kind_case; name: its member of the
 * union; message: pointer to the message.
 */
#define REPLY(CONSTANT, name, message)                                                             \
	{                                                                                          \
		.base = PROTOBUF_C_MESSAGE_INIT(&loaderd__reply__descriptor),                      \
		.kind_case = LOADERD__REPLY__KIND_##CONSTANT, .name = (message)                    \
	}

/* Returns an Error that names no field of the request. code: a positive errno. */
Loaderd__Error reply_error(int code, const char *text);
