/*
 * main() of tests that run on several ranks, directly or under mpirun. A failed test ends all
 * ranks.
 */
#pragma once

#include "trainer/device/comm/comm.h"

extern struct comm *comm;
