/*
 * The key of the ranks of a user, by which they tell each other from strangers. Whoever has it can
 * be a rank.
 *
 * LOADERD_RANKS_KEY, any text of at least KEY_TEXT_MIN bytes, or else the file ranks.key in
 * $XDG_STATE_HOME/loaderd or ~/.local/state/loaderd, which the first rank makes. Launchers have no
 * secret to share: torchrun's run id is an argument that every user of the machine sees.
 */
#pragma once

#include "trainer/device/comm/tcp/sha256.h"

enum { KEY_TEXT_MIN = 16 };

#define KEY_VARIABLE "LOADERD_RANKS_KEY"

/*
 * error: COMM_ERROR_MAX bytes. -EPERM if another user may read or could have written the file,
 * -EBADMSG if it is no key.
 */
int key_get(uint8_t ret_key[SHA256_SIZE], char *error);
