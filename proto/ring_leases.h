/*
 * Tests whether file leases work on memfds. The daemon uses leases to detect that no process holds
 * a ring's memory any more (proto/SPEC.md, "Whose memory it is"); sysctl fs.leases-enable can turn
 * them off.
 */
#pragma once

/*
 * Returns 1 if leases work, 0 if the kernel refuses them, or a negative errno if the test failed.
 */
int ring_leases_work(void);
