/*
 * Requests that need a dataset's files, OpenFeed and GetDataset: the files are asked for, come part
 * by part, and are read on a chores thread. One at a time per connection. Control thread only.
 */
#pragma once

#include "proto/feed.pb-c.h"

struct session;

/* Takes over the request. */
void opening_begin(struct session *session, Loaderd__Request *request);
/* A part of the files has come, with the frame that the session's reader holds. */
void opening_files(struct session *session, const Loaderd__Files *part);
/* Replies that waited have left. */
void opening_flushed(struct session *session);
/* The session closes: what was on its way goes. */
void opening_drop(struct session *session);
