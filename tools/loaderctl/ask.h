/*
 * One question to the daemon and its answer. Connects for each; belongs to one thread. The caller
 * frees the reply with loaderd__reply__free_unpacked(reply, NULL). Errors are negative errno with a
 * sentence in error (FEED_ERROR_MAX bytes).
 */
#pragma once

#include "proto/client/connection.h"

/* Of the asking user's feeds. */
int ask_status(const char *socket, Loaderd__Reply **ret_reply, char *error);
/* Of everybody's, for the administrator. */
int ask_status_of_all(const char *socket, Loaderd__Reply **ret_reply, char *error);
int ask_dataset(const char *socket, const char *path, Loaderd__Reply **ret_reply, char *error);
/*
 * The administrator asks the daemon to stop and waits until it has closed the connection, which it
 * does when it ends. -ETIMEDOUT: it still runs.
 */
int ask_shutdown(const char *socket, int timeout_ms, char *error);
