/* The fetcher's clients: libfeed and loaderctl, by the messages of proto/fetch.proto. Main thread.
 */
#pragma once

#include "tools/fetch/schedule.h"

struct server;

/* Takes over listen_fd. -ENOMEM. */
int server_new(struct fetcher *fetcher, int listen_fd, struct server **ret_server);
void server_free(struct server *server);
/*
 * Serves until nobody has been connected for idle_s seconds, or stopped() says true. 0, or a
 * negative errno.
 */
int server_run(struct server *server, unsigned idle_s, bool (*stopped)(void));
