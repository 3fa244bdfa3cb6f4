/* Internal: parts of a status as text, on standard output. */
#pragma once

#include "proto/feed.pb-c.h"

/* Prints text that may come from another user. */
void put_text(const char *text);
/* Prints parts with their shares, buckets and packs, a line each. */
void put_order(const Loaderd__OrderStatus *order);
/* Prints how far the opening of a feed is. */
void put_opening(const Loaderd__Progress *opening);
