/* Something of the supervisor's that its epoll reports on: event.data.ptr names it. */
#pragma once

#include <stdint.h>

struct watched {
	int fd;
	void (*ready)(struct watched *watched, uint32_t events);
};
