/*
 * Whether the kernel says when nobody has the memory of a ring any more: it is asked by leases on
 * files (proto/SPEC.md, "Whose memory it is"), which sysctl fs.leases-enable can turn off.
 */
#pragma once

/* 1: it does; 0: it refuses leases; negative errno: it could not be tried. */
int ring_leases_work(void);
