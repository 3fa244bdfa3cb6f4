/*
 * Sends one request to the daemon and returns the reply, on a new connection each time. One thread.
 * The caller frees the reply with loaderd__reply__free_unpacked(reply, NULL). Errors are a negative
 * errno, with a message in error (FEED_ERROR_MAX bytes).
 */
#pragma once

#include "proto/client/connection.h"

/* Status with the feeds of the calling user. */
int ask_status(const char *socket, Loaderd__Reply **ret_reply, char *error);
/* Status with the feeds of all users; requires access to the administrator's socket. */
int ask_status_of_all(const char *socket, Loaderd__Reply **ret_reply, char *error);
int ask_dataset(const char *socket, const char *path, Loaderd__Reply **ret_reply, char *error);
/*
 * Requests shutdown on the administrator's socket and waits until the daemon closes the connection,
 * which happens when it exits. -ETIMEDOUT if it is still running.
 */
int ask_shutdown(const char *socket, int timeout_ms, char *error);
