/*
 * The fake daemon as a program, started like loaderd: --listen-fd N --lifeline-fd N [--set
 * pool.threads=N]. $FAKE_START changes its behaviour: "die" prints an error and exits before it
 * serves, "kill" dies by a signal, "stubborn" ignores lifeline and SIGTERM, "chatty" fills standard
 * error.
 */
#include "tests/unit/proto/client/fake.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static const char threads[] = "pool.threads=";
	int listen_fd = -1, lifeline = -1;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--listen-fd") == 0)
			listen_fd = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--lifeline-fd") == 0)
			lifeline = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--set") == 0 &&
			 strncmp(argv[i + 1], threads, strlen(threads)) == 0)
			fprintf(stderr, "threads %s\n", argv[i + 1] + strlen(threads));
		else if (strcmp(argv[i], "--set") == 0)
			fprintf(stderr, "set %s\n", argv[i + 1]);
	}
	const char *start = getenv("FAKE_START");
	if (!start)
		start = "";
	if (strcmp(start, "die") == 0) {
		fputs("loaderd: starting\nloaderd: threads: 9999 are more than 1024.\n", stderr);
		return 1;
	}
	if (strcmp(start, "kill") == 0)
		raise(SIGKILL);
	if (strcmp(start, "stubborn") == 0) {
		signal(SIGTERM, SIG_IGN);
		lifeline = -1;
	}
	if (strcmp(start, "chatty") == 0)
		for (int i = 0; i < 20000; i++)
			dprintf(2, "loaderd: line %d of much that nobody reads\n", i);
	/* no other fd of the client may be inherited */
	for (int fd = 5; fd < 256; fd++)
		if (close(fd) == 0)
			dprintf(2, "loaderd: descriptor %d leaked\n", fd);
	dprintf(2, "loaderd: ready\n");
	fake_serve(listen_fd, lifeline);
	return 0;
}
