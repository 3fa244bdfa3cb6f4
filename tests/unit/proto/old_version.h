/* Simulates a daemon of the previous protocol version: the answer to a newer OpenFeed. */
#pragma once

#include "proto/feed.pb-c.h"
#include "proto/framing.h"

#include <errno.h>
#include <stdbool.h>

/* If the daemon does not know the request's version, sends the refusal and returns true. */
static inline bool old_version_refuses(int fd, const Loaderd__Request *request)
{
	Loaderd__Error error = LOADERD__ERROR__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	uint8_t data[64];
	if (!request || request->kind_case != LOADERD__REQUEST__KIND_OPEN_FEED ||
	    request->open_feed->version <= PROTO_VERSION_OLDEST)
		return false;
	error.code = EPROTO;
	error.text = error.field = (char *)"version";
	error.position = -1;
	reply.kind_case = LOADERD__REPLY__KIND_ERROR;
	reply.error = &error;
	frame_send(fd, data, loaderd__reply__pack(&reply, data), NULL, 0, 1000);
	return true;
}
