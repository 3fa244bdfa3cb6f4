#include "proto/overflow_uid.h"

#include <stdio.h>

uid_t overflow_uid(void)
{
	unsigned uid = 65534;
	FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");
	if (file && fscanf(file, "%u", &uid) != 1)
		uid = 65534;
	if (file)
		fclose(file);
	return uid;
}
