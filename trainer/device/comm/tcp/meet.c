/*
 * How ranks find each other. Rank 0 listens; the others look for it on the ports where it may be
 * (launch.h), since other programs may have some of them. Messages on a connection, sizes fixed:
 *
 *     rank -> rank 0  hello      which run, a nonce, the port, and a proof, by which rank 0 prefers
 *                                it; who hears it on another port cannot use it on rank 0's
 *     rank 0 -> rank  challenge  a nonce, and the proof that rank 0 has the key
 *     rank -> rank 0  join       the proof that the rank has it now, and what others need to know
 *     rank 0 -> rank  message    welcome, or why not; then the session and all members
 *
 * A proof is a code of all messages so far with the key (key.h), so that neither side learns the
 * key or can repeat what it has heard. Nobody without the key gets further than the hello, and
 * rank 0 believes nothing before it has the proof.
 */
#include "trainer/device/comm/tcp/acceptor.h"
#include "trainer/device/comm/tcp/key.h"
#include "trainer/device/comm/tcp/tcp.h"

#include "format/base/system/clock.h"
#include "format/base/system/io.h"
#include "format/base/text/sentence.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define fail(error, code, ...) sentence_fail((error), COMM_ERROR_MAX, (code), __VA_ARGS__)

enum {
	CONNECT_MS = 2000,   /* to connect to one port */
	CHALLENGE_MS = 2000, /* for rank 0, or a stranger, to answer */
	PAUSE_MS = 100,      /* between two rounds over the ports */
	LATE_MS = 10000,     /* that the other ranks wait longer than rank 0, for its reason */
	SEND_MS = 5000,
	LISTED_MAX = 8, /* ranks listed in a sentence */
};

static const char magic[16] = "loaderd ranks 1";

struct hello {
	char magic[sizeof(magic)];
	uint8_t run[SHA256_SIZE], nonce[TCP_NONCE];
	uint64_t port; /* to which it is sent */
	uint8_t proof[SHA256_SIZE];
};

struct challenge {
	char magic[sizeof(magic)];
	uint8_t nonce[TCP_NONCE], proof[SHA256_SIZE];
};

struct join {
	uint32_t rank, world;
	struct tcp_member member; /* but for the host */
	uint8_t proof[SHA256_SIZE];
};

/* What proofs are of. */
struct transcript {
	struct hello hello;
	struct challenge challenge; /* zeroes after the nonce in the challenge's own proof */
	struct join join;           /* zeroes in the challenge's proof; without its proof */
};

static void prove_challenge(const struct tcp_run *run, const struct hello *hello,
			    const struct challenge *challenge, uint8_t ret_proof[SHA256_SIZE])
{
	struct transcript all;

	memset(&all, 0, sizeof(all));
	all.hello = *hello;
	memcpy(&all.challenge, challenge, offsetof(struct challenge, proof));
	sha256_hmac(run->key, &all, sizeof(all), ret_proof);
}

static void prove_join(const struct tcp_run *run, const struct hello *hello,
		       const struct challenge *challenge, const struct join *join,
		       uint8_t ret_proof[SHA256_SIZE])
{
	struct transcript all;

	memset(&all, 0, sizeof(all));
	all.hello = *hello;
	all.challenge = *challenge;
	memcpy(&all.join, join, offsetof(struct join, proof));
	sha256_hmac(run->key, &all, sizeof(all), ret_proof);
}

static int draw_nonce(uint8_t ret_nonce[TCP_NONCE], char *error)
{
	return getrandom(ret_nonce, TCP_NONCE, 0) == TCP_NONCE
		       ? 0
		       : fail(error, -EIO, "the kernel has no random numbers");
}

/* Identifies the machine: the ranks that share its GPUs and a private daemon. */
static uint64_t machine_hash(const char *name)
{
	char text[256] = "";
	uint8_t hash[SHA256_SIZE];
	uint64_t id;
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (file) {
		if (!fgets(text, 64, file))
			*text = '\0';
		fclose(file);
	}
	size_t length = strlen(text);
	snprintf(text + length, sizeof(text) - length, "%s", name);
	sha256(text, strlen(text), hash);
	memcpy(&id, hash, sizeof(id));
	return id;
}

static void describe_self(const struct tcp_run *run, const struct launch *launch,
			  struct tcp_member *ret_member)
{
	memset(ret_member, 0, sizeof(*ret_member));
	if (gethostname(ret_member->name, sizeof(ret_member->name) - 1) < 0)
		snprintf(ret_member->name, sizeof(ret_member->name), "?");
	ret_member->machine = machine_hash(ret_member->name);
	ret_member->process = (uint32_t)getpid();
	ret_member->local_rank = launch->local_rank;
	ret_member->local_world = launch->local_world;
	ret_member->port = tcp_port(run->listener);
}

/* True for addresses that are the machine's own whoever resolves them. */
static bool is_local_name(const char *name)
{
	struct in6_addr six;
	struct in_addr four;

	if (inet_pton(AF_INET, name, &four) == 1)
		return ntohl(four.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, name, &six) == 1 ? IN6_IS_ADDR_LOOPBACK(&six)
						    : strcmp(name, "localhost") == 0;
}

/* The listener for the lanes. */
static int listen_for_lanes(struct tcp_run *run, char *error)
{
	run->listener = tcp_listen(run->local ? &run->found : NULL, 0);
	return run->listener < 0 ? fail(error, run->listener, "cannot listen on a port: %s",
					strerror(-run->listener))
				 : 0;
}

/* ---- rank 0 ---- */

struct meeting {
	struct tcp_run *run;
	const struct launch *launch;
	unsigned seated;          /* ranks that have joined, rank 0 included */
	unsigned strangers;       /* connections with another key, or none */
	struct tcp_host stranger; /* the last of them */
	uint16_t port;
	struct acceptor acceptor;
};

/* The messages of a newcomer, at the beginning of its bytes. The last is rank 0's. */
struct talk {
	struct hello hello;
	struct join join;
	struct challenge challenge;
};

_Static_assert(sizeof(struct talk) <= ACCEPTOR_BYTES, "");
_Static_assert(offsetof(struct talk, join) == sizeof(struct hello), "");

static void note_stranger(struct meeting *meeting, const struct newcomer *newcomer)
{
	meeting->strangers++;
	tcp_peer(newcomer->fd, &meeting->stranger);
}

static bool take_hello(struct meeting *meeting, struct newcomer *newcomer)
{
	char error[COMM_ERROR_MAX];
	uint8_t proof[SHA256_SIZE];
	struct hello hello;
	struct challenge challenge;

	memcpy(&hello, newcomer->bytes, sizeof(hello));
	if (memcmp(hello.magic, magic, sizeof(magic)) != 0 ||
	    memcmp(hello.run, meeting->launch->run, sizeof(hello.run)) != 0 ||
	    hello.port != meeting->port)
		return false;
	memcpy(challenge.magic, magic, sizeof(magic));
	if (draw_nonce(challenge.nonce, error) < 0)
		return false;
	prove_challenge(meeting->run, &hello, &challenge, challenge.proof);
	sha256_hmac(meeting->run->key, &hello, offsetof(struct hello, proof), proof);
	newcomer->proved = memcmp(proof, hello.proof, sizeof(proof)) == 0;
	memcpy(newcomer->bytes + offsetof(struct talk, challenge), &challenge, sizeof(challenge));
	newcomer->wanted = offsetof(struct talk, challenge);
	/* also to others, so that a rank with another key can say so */
	bool sent = tcp_send(newcomer->fd, &challenge, sizeof(challenge)) == sizeof(challenge);
	if (!newcomer->proved)
		note_stranger(meeting, newcomer);
	return sent && newcomer->proved;
}

/* A rank that joins a second time has left, or is another process. Returns the run's failure. */
static int check_seat(struct tcp_run *run, const struct join *join)
{
	const struct tcp_member *first = &run->members[join->rank], *second = &join->member;

	if (join->world != run->world)
		return tcp_end(run, COMM_ABORTED, -EINVAL,
			       "rank %u (process %u on %s) was started as one of %u ranks, but "
			       "rank 0 as one of %u: start all with the same number",
			       join->rank, second->process, second->name, join->world, run->world);
	if (join->rank >= run->world || join->rank == 0 || run->controls[join->rank] >= 0)
		return tcp_end(run, COMM_ABORTED, -EINVAL,
			       "two processes are rank %u: process %u on %s and process %u on %s; "
			       "give every rank its own number",
			       join->rank, join->rank < run->world ? first->process : 0,
			       join->rank < run->world ? first->name : "?", second->process,
			       second->name);
	return 0;
}

static bool take_join(struct meeting *meeting, struct newcomer *newcomer)
{
	struct tcp_run *run = meeting->run;
	uint8_t proof[SHA256_SIZE];
	struct talk talk;

	memcpy(&talk, newcomer->bytes, sizeof(talk));
	prove_join(run, &talk.hello, &talk.challenge, &talk.join, proof);
	if (memcmp(proof, talk.join.proof, sizeof(proof)) != 0) {
		note_stranger(meeting, newcomer);
		return false;
	}
	talk.join.member.name[TCP_NAME_MAX - 1] = '\0';
	if (check_seat(run, &talk.join) < 0) {
		struct tcp_message message = {.news = TCP_NEWS_REFUSED};

		snprintf(message.text, sizeof(message.text), "%s", run->reason);
		tcp_send(newcomer->fd, &message, sizeof(message));
		return false;
	}
	struct tcp_member *member = &run->members[talk.join.rank];
	*member = talk.join.member;
	if (!tcp_peer(newcomer->fd, &member->host) || tcp_is_loopback(&member->host))
		member->host = (struct tcp_host){0};
	run->controls[talk.join.rank] = newcomer->fd;
	newcomer->fd = -1;
	meeting->seated++;
	return false;
}

static bool take_message(struct newcomer *newcomer, void *context)
{
	return newcomer->wanted == sizeof(struct hello) ? take_hello(context, newcomer)
							: take_join(context, newcomer);
}

/* Listens on the first free port. */
static int listen_for_ranks(struct meeting *meeting, char *error)
{
	const struct launch *launch = meeting->launch;
	struct tcp_run *run = meeting->run;
	int fd = -1;

	for (unsigned i = 0; i < LAUNCH_PORTS && fd < 0; i++) {
		fd = tcp_listen(run->local ? &run->found : NULL, launch->ports[i]);
		meeting->port = launch->ports[i];
	}
	meeting->acceptor = (struct acceptor){.listener = fd,
					      .wanted = sizeof(struct hello),
					      .read = take_message,
					      .context = meeting};
	return fd < 0 ? fail(error, fd,
			     "rank 0 cannot listen on any of the ports %u to %u: %s; choose "
			     "another MASTER_PORT",
			     launch->ports[0], launch->ports[LAUNCH_PORTS - 1], strerror(-fd))
		      : 0;
}

/* Lists the ranks that have not come: "rank 2", "ranks 2, 3 and 5". */
static void list_missing(const struct tcp_run *run, unsigned count, char *text, size_t size)
{
	size_t at = (size_t)snprintf(text, size, count == 1 ? "rank" : "ranks");
	unsigned listed = 0;

	for (unsigned rank = 1; rank < run->world && listed < LISTED_MAX; rank++) {
		if (run->controls[rank] >= 0)
			continue;
		at += (size_t)snprintf(text + at, size - at, "%s %u",
				       listed == 0           ? ""
				       : listed + 1 == count ? " and"
							     : ",",
				       rank);
		listed++;
	}
	if (count > listed)
		snprintf(text + at, size - at, " and %u more", count - listed);
}

static int meeting_late(struct meeting *meeting)
{
	struct tcp_run *run = meeting->run;
	unsigned count = run->world - meeting->seated;
	char missing[128], host[TCP_HOST_TEXT], strangers[512] = "";

	list_missing(run, count, missing, sizeof(missing));
	if (meeting->strangers)
		snprintf(strangers, sizeof(strangers),
			 "; %u connection%s with another key than rank 0's came, the last from %s: "
			 "machines that do not share the home folder need the same secret text "
			 "in " KEY_VARIABLE,
			 meeting->strangers, meeting->strangers == 1 ? "" : "s",
			 tcp_host_text(&meeting->stranger, host));
	return tcp_end(run, COMM_LOST, -ETIMEDOUT,
		       "%s of %u did not come to rank 0 on %s, port %u, within %u seconds "
		       "(" LAUNCH_TIMEOUT_VARIABLE ")%s",
		       missing, run->world, run->members[0].name, meeting->port,
		       meeting->launch->seconds, strangers);
}

/* A rank that had come and is gone ends the run; it is the launcher's to start again. */
static int check_seated(struct tcp_run *run)
{
	char byte;

	for (unsigned rank = 1; rank < run->world; rank++)
		if (run->controls[rank] >= 0 && tcp_receive(run->controls[rank], &byte, 1) < 0)
			return tcp_end(run, COMM_LOST, -ECONNRESET,
				       "rank %u of %u (process %u on %s) went away before all "
				       "ranks had come",
				       rank, run->world, run->members[rank].process,
				       run->members[rank].name);
	return 0;
}

static int gather_ranks(struct meeting *meeting)
{
	struct tcp_run *run = meeting->run;
	int64_t deadline = clock_ms() + 1000 * (int64_t)meeting->launch->seconds;
	struct pollfd polls[ACCEPTOR_MAX + 1];

	while (meeting->seated < run->world) {
		poll(polls, acceptor_polls(&meeting->acceptor, polls), PAUSE_MS);
		acceptor_advance(&meeting->acceptor);
		int r = run->failure ? run->failure : check_seated(run);
		if (r < 0)
			return r;
		if (clock_ms() >= deadline && meeting->seated < run->world)
			return meeting_late(meeting);
	}
	return 0;
}

/* Checks what launchers say about the ranks of a machine. */
static int check_machines(struct tcp_run *run)
{
	for (unsigned rank = 0; rank < run->world; rank++) {
		const struct tcp_member *member = &run->members[rank];
		unsigned first = rank - (unsigned)(member->local_rank < 0 ? 0 : member->local_rank);

		if (member->local_rank < 0)
			continue;
		if (member->local_rank > (int32_t)rank || run->members[first].local_rank != 0 ||
		    run->members[first].local_world != member->local_world)
			return tcp_end(run, COMM_ABORTED, -EINVAL,
				       "rank %u has LOCAL_RANK=%d and LOCAL_WORLD_SIZE=%d, which "
				       "do not fit those of the rank that is first on its machine",
				       rank, member->local_rank, member->local_world);
	}
	return 0;
}

/*
 * Numbers the ranks of each machine as launchers say; if one does not, those with the same hash,
 * in their order.
 */
static void number_locally(struct tcp_run *run)
{
	bool said = true;

	for (unsigned rank = 0; rank < run->world; rank++)
		said = said && run->members[rank].local_rank >= 0;
	for (unsigned rank = 0; rank < run->world && !said; rank++) {
		struct tcp_member *member = &run->members[rank];

		member->local_rank = member->local_world = 0;
		for (unsigned other = run->world; other-- > 0;) {
			bool same = run->members[other].machine == member->machine;

			member->local_world += same;
			member->local_rank += same && other < rank;
			member->leader = same ? other : member->leader;
		}
	}
	for (unsigned rank = 0; rank < run->world && said; rank++)
		run->members[rank].leader = rank - (unsigned)run->members[rank].local_rank;
}

/* Tells the ranks that have come that all have, or why not. */
static void answer_ranks(const struct tcp_run *run)
{
	struct tcp_message message = {.news = run->failure ? TCP_NEWS_REFUSED : TCP_NEWS_WELCOME,
				      .rank = run->ended};
	int64_t deadline = clock_ms() + SEND_MS;

	snprintf(message.text, sizeof(message.text), "%s", run->reason);
	for (unsigned rank = 1; rank < run->world; rank++) {
		int fd = run->controls[rank];

		if (fd < 0 || tcp_send_all(fd, &message, sizeof(message), deadline) < 0 ||
		    run->failure)
			continue;
		/* a rank that is gone is noticed later */
		tcp_send_all(fd, run->session, sizeof(run->session), deadline);
		tcp_send_all(fd, run->members, run->world * sizeof(*run->members), deadline);
	}
}

static int meet_as_leader(struct tcp_run *run, const struct launch *launch, char *error)
{
	struct meeting *meeting = calloc(1, sizeof(*meeting));

	if (!meeting)
		return fail(error, -ENOMEM, "out of memory");
	meeting->run = run;
	meeting->launch = launch;
	meeting->seated = 1;
	int r = listen_for_lanes(run, error);
	if (r == 0)
		r = draw_nonce(run->session, error);
	if (r == 0)
		r = listen_for_ranks(meeting, error);
	if (r == 0) {
		describe_self(run, launch, &run->members[0]);
		r = gather_ranks(meeting);
		if (r == 0)
			r = check_machines(run);
		number_locally(run);
		answer_ranks(run);
		acceptor_close(&meeting->acceptor);
	}
	free(meeting);
	return r;
}

/* ---- other ranks ---- */

/* What a rank met on the ports, for the sentence if it does not find rank 0. */
struct search {
	const char *problem; /* of resolving the name; NULL if it has addresses */
	bool connected, other_key;
	uint16_t port; /* of these */
};

/* Sends the hello and checks the challenge. -ENOENT: not rank 0, or not of this run. */
static int greet_leader(struct tcp_run *run, const struct launch *launch, int fd,
			struct hello *hello, struct challenge *challenge, struct search *search)
{
	uint8_t proof[SHA256_SIZE];
	char error[COMM_ERROR_MAX];
	int64_t deadline = clock_ms() + CHALLENGE_MS;

	memcpy(hello->magic, magic, sizeof(magic));
	memcpy(hello->run, launch->run, sizeof(hello->run));
	hello->port = search->port;
	if (draw_nonce(hello->nonce, error) < 0)
		return -ENOENT;
	sha256_hmac(run->key, hello, offsetof(struct hello, proof), hello->proof);
	if (tcp_send_all(fd, hello, sizeof(*hello), deadline) < 0 ||
	    tcp_receive_all(fd, challenge, sizeof(*challenge), deadline) < 0 ||
	    memcmp(challenge->magic, magic, sizeof(magic)) != 0)
		return -ENOENT;
	prove_challenge(run, hello, challenge, proof);
	if (memcmp(proof, challenge->proof, sizeof(proof)) == 0)
		return 0;
	search->other_key = true;
	return -ENOENT;
}

static int connect_to(const struct tcp_host *host, uint16_t port)
{
	int fd = tcp_connect_start(host, port);

	if (fd < 0)
		return fd;
	struct pollfd ready = {fd, POLLOUT, 0};
	int r = poll(&ready, 1, CONNECT_MS) == 1 ? tcp_connect_result(fd) : -ETIMEDOUT;
	if (r == 0)
		return fd;
	close(fd);
	return r;
}

/* Joins at one port. Returns the connection, or -ENOENT. */
static int try_port(struct tcp_run *run, const struct launch *launch, const struct tcp_host *host,
		    uint16_t port, struct search *search)
{
	struct hello hello;
	struct challenge challenge;
	struct join join;
	int fd = connect_to(host, port);

	if (fd < 0)
		return -ENOENT;
	search->connected = true;
	search->port = port;
	int r = greet_leader(run, launch, fd, &hello, &challenge, search);
	if (r == 0) {
		run->found = *host;
		memset(&join, 0, sizeof(join));
		join.rank = run->rank;
		join.world = run->world;
		memcpy(&join.member, &run->members[run->rank], sizeof(join.member));
		prove_join(run, &hello, &challenge, &join, join.proof);
		r = tcp_send_all(fd, &join, sizeof(join), clock_ms() + CHALLENGE_MS);
	}
	if (r == 0)
		return fd;
	close(fd);
	return -ENOENT;
}

static int try_ports(struct tcp_run *run, const struct launch *launch, struct search *search)
{
	struct tcp_host hosts[TCP_HOSTS_MAX];
	const char *problem;
	unsigned count = tcp_resolve(launch->address, hosts, &problem);

	search->problem = count ? NULL : problem;
	for (unsigned p = 0; p < LAUNCH_PORTS; p++)
		for (unsigned h = 0; h < count; h++) {
			int fd = try_port(run, launch, &hosts[h], launch->ports[p], search);

			if (fd >= 0)
				return fd;
		}
	return -ENOENT;
}

static int not_found(const struct tcp_run *run, const struct launch *launch,
		     const struct search *search, char *error)
{
	unsigned first = launch->ports[0], last = launch->ports[LAUNCH_PORTS - 1];

	if (search->problem)
		return fail(error, -ETIMEDOUT,
			    "rank %u of %u cannot find rank 0: MASTER_ADDR=%s: %s", run->rank,
			    run->world, launch->address, search->problem);
	if (search->other_key)
		return fail(error, -ETIMEDOUT,
			    "rank %u of %u finds at %s, port %u, a rank 0 with another key: "
			    "machines that do not share the home folder need the same secret text "
			    "in " KEY_VARIABLE,
			    run->rank, run->world, launch->address, search->port);
	return fail(error, -ETIMEDOUT,
		    "rank %u of %u did not find rank 0 at %s, ports %u to %u, within %u seconds "
		    "(" LAUNCH_TIMEOUT_VARIABLE ")%s: check that MASTER_ADDR is the machine of "
		    "rank 0, and that no firewall is between",
		    run->rank, run->world, launch->address, first, last, launch->seconds,
		    search->connected ? "; other programs answer there" : "");
}

/* Waits for rank 0's answer, which comes when all ranks have joined. */
static int await_answer(struct tcp_run *run, int64_t deadline, char *error)
{
	struct tcp_message message;
	int fd = run->controls[0];
	int r = tcp_receive_all(fd, &message, sizeof(message), deadline);

	message.text[sizeof(message.text) - 1] = '\0';
	if (r == 0 && message.news == TCP_NEWS_REFUSED) {
		bool lost = message.rank == COMM_LOST;

		return fail(error, lost ? -ECONNRESET : -EINVAL, "%s", message.text);
	}
	if (r == 0)
		r = tcp_receive_all(fd, run->session, sizeof(run->session), deadline);
	if (r == 0)
		r = tcp_receive_all(fd, run->members, run->world * sizeof(*run->members), deadline);
	for (unsigned rank = 0; r == 0 && rank < run->world; rank++)
		run->members[rank].name[TCP_NAME_MAX - 1] = '\0';
	return r < 0 ? fail(error, r == -ETIMEDOUT ? r : -ECONNRESET,
			    "rank %u of %u: rank 0 went away before all ranks had come", run->rank,
			    run->world)
		     : 0;
}

static int meet_as_follower(struct tcp_run *run, const struct launch *launch, char *error)
{
	int64_t deadline = clock_ms() + 1000 * (int64_t)launch->seconds;
	struct search search = {0};
	int fd, r = listen_for_lanes(run, error);

	if (r < 0)
		return r;
	describe_self(run, launch, &run->members[run->rank]);
	while ((fd = try_ports(run, launch, &search)) < 0) {
		if (clock_ms() >= deadline)
			return not_found(run, launch, &search, error);
		poll(NULL, 0, PAUSE_MS);
	}
	run->controls[0] = fd;
	return await_answer(run, deadline + LATE_MS, error);
}

int tcp_meet(struct tcp_run *run, const struct launch *launch, char *error)
{
	struct tcp_host hosts[TCP_HOSTS_MAX];
	const char *problem;
	int r = key_get(run->key, error);

	if (r < 0)
		return r;
	run->local = is_local_name(launch->address);
	if (tcp_resolve(run->local ? launch->address : "127.0.0.1", hosts, &problem))
		run->found = hosts[0];
	r = run->rank ? meet_as_follower(run, launch, error) : meet_as_leader(run, launch, error);
	if (r < 0 && run->failure)
		snprintf(error, COMM_ERROR_MAX, "%s", run->reason);
	return r;
}
