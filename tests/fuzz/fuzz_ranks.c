/*
 * Strangers at the ports of ranks over TCP (comm/tcp), and ranks among them. The first byte selects
 * what meets them: rank 0, a rank that looks for rank 0, or a rank that opens its lanes. The others
 * are steps: a byte with what the peers do, a byte that chooses the connection, and arguments. At
 * the end, whoever has come further than the first answer must have proved that it has the key, and
 * all connections must be closed.
 */
#include "format/base/system/io.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/fake_network.h"
#include "tests/fuzz/support/script.h"
#include "trainer/device/comm/tcp/key.h"
#include "trainer/device/comm/tcp/tcp.h"

#include <stdlib.h>
#include <string.h>

enum { WORLD_MAX = 4, SECONDS = 5 };

static const char key_text[] = "the key of these tests", magic[16] = "loaderd ranks 1";

/* The messages of meet.c and lanes.c. */
struct hello {
	char magic[16];
	uint8_t run[SHA256_SIZE], nonce[TCP_NONCE];
	uint64_t port;
	uint8_t proof[SHA256_SIZE];
};

struct challenge {
	char magic[16];
	uint8_t nonce[TCP_NONCE], proof[SHA256_SIZE];
};

struct join {
	uint32_t rank, world;
	struct tcp_member member;
	uint8_t proof[SHA256_SIZE];
};

struct transcript {
	struct hello hello;
	struct challenge challenge;
	struct join join;
};

struct greeting {
	uint8_t session[TCP_NONCE];
	uint32_t number, group, lane, from, to;
	uint8_t proof[SHA256_SIZE];
};

struct peers {
	struct script script;
	struct tcp_run *run;
	struct launch launch;
	struct tcp_member members[WORLD_MAX];
	int controls[WORLD_MAX];
};

static void check(bool holds)
{
	if (!holds)
		abort();
}

/* Copies a message of which `size` bytes have been transferred; false if it is not complete. */
static bool copy(void *message, const uint8_t *bytes, size_t at, size_t size, size_t transferred)
{
	if (transferred < at + size)
		return false;
	memcpy(message, bytes + at, size);
	return true;
}

/* ---- proofs ---- */

static void prove_hello(const struct tcp_run *run, struct hello *hello)
{
	sha256_hmac(run->key, hello, offsetof(struct hello, proof), hello->proof);
}

static void prove_challenge(const struct tcp_run *run, const struct hello *hello,
			    struct challenge *challenge)
{
	struct transcript all;

	memset(&all, 0, sizeof(all));
	all.hello = *hello;
	memcpy(&all.challenge, challenge, offsetof(struct challenge, proof));
	sha256_hmac(run->key, &all, sizeof(all), challenge->proof);
}

static void prove_join(const struct tcp_run *run, const struct hello *hello,
		       const struct challenge *challenge, struct join *join)
{
	struct transcript all;

	memset(&all, 0, sizeof(all));
	all.hello = *hello;
	all.challenge = *challenge;
	memcpy(&all.join, join, offsetof(struct join, proof));
	sha256_hmac(run->key, &all, sizeof(all), join->proof);
}

static void prove_greeting(const struct tcp_run *run, struct greeting *greeting)
{
	sha256_hmac(run->key, greeting, offsetof(struct greeting, proof), greeting->proof);
}

/* ---- what peers do ---- */

static void send_bytes(struct peers *peers, struct fake_connection *connection)
{
	size_t size = script_next(&peers->script);

	if (size > peers->script.left)
		size = peers->script.left;
	fake_receive(connection, peers->script.bytes, size);
	peers->script.bytes += size;
	peers->script.left -= size;
}

/* Sends as much of a message as an argument says, with a bit changed if another does. */
static void send_message(struct peers *peers, struct fake_connection *connection, void *message,
			 size_t size)
{
	uint8_t flaw = script_next(&peers->script), part = script_next(&peers->script);

	if (flaw)
		((uint8_t *)message)[flaw * 7u % size] ^= (uint8_t)(1u << flaw % 8);
	fake_receive(connection, message, part ? part * 3u % (size + 1) : size);
}

static void send_hello(struct peers *peers, struct fake_connection *connection)
{
	struct hello hello;

	memcpy(hello.magic, magic, sizeof(magic));
	memcpy(hello.run, peers->launch.run, sizeof(hello.run));
	memset(hello.nonce, script_next(&peers->script), sizeof(hello.nonce));
	hello.port = peers->launch.ports[0];
	prove_hello(peers->run, &hello);
	send_message(peers, connection, &hello, sizeof(hello));
}

/* A rank's, on a connection that rank 0 has challenged. */
static void send_join(struct peers *peers, struct fake_connection *connection)
{
	struct hello hello;
	struct challenge challenge;
	struct join join;

	memset(&join, 0, sizeof(join));
	join.rank = (uint32_t)script_number(script_next(&peers->script));
	join.world = peers->run->world + script_next(&peers->script) % 4 / 3;
	join.member.local_rank = (int32_t)script_number(script_next(&peers->script)) - 1;
	join.member.local_world = (int32_t)script_number(script_next(&peers->script)) - 1;
	join.member.machine = script_next(&peers->script);
	memset(join.member.name, script_next(&peers->script), TCP_NAME_MAX);
	if (!copy(&hello, connection->received, 0, sizeof(hello), connection->in) ||
	    !copy(&challenge, connection->sent, 0, sizeof(challenge), connection->out))
		return;
	prove_join(peers->run, &hello, &challenge, &join);
	send_message(peers, connection, &join, sizeof(join));
}

/* Rank 0's, to a rank that has sent its hello. */
static void send_challenge(struct peers *peers, struct fake_connection *connection)
{
	struct hello hello;
	struct challenge challenge;

	if (!copy(&hello, connection->sent, 0, sizeof(hello), connection->out))
		return;
	memcpy(challenge.magic, magic, sizeof(magic));
	memset(challenge.nonce, script_next(&peers->script), sizeof(challenge.nonce));
	prove_challenge(peers->run, &hello, &challenge);
	send_message(peers, connection, &challenge, sizeof(challenge));
}

/* Rank 0's, when all ranks have joined, or not. */
static void send_answer(struct peers *peers, struct fake_connection *connection)
{
	struct tcp_message message;

	memset(&message, 'x', sizeof(message));
	message.news = script_next(&peers->script) % 6;
	message.rank = script_next(&peers->script) % 4;
	send_message(peers, connection, &message, sizeof(message));
}

static void send_greeting(struct peers *peers, struct fake_connection *connection)
{
	struct greeting greeting;

	memset(&greeting, 0, sizeof(greeting));
	memcpy(greeting.session, peers->run->session, TCP_NONCE);
	greeting.lane = (uint32_t)script_number(script_next(&peers->script));
	greeting.from = (uint32_t)script_number(script_next(&peers->script));
	greeting.to = peers->run->rank + script_next(&peers->script) % 4 / 3;
	prove_greeting(peers->run, &greeting);
	send_message(peers, connection, &greeting, sizeof(greeting));
}

static void send_greeting_answer(struct peers *peers, struct fake_connection *connection)
{
	struct greeting greeting;
	uint8_t answer[SHA256_SIZE];

	if (!copy(&greeting, connection->sent, 0, sizeof(greeting), connection->out))
		return;
	sha256_hmac(peers->run->key, &greeting, sizeof(greeting), answer);
	send_message(peers, connection, answer, sizeof(answer));
}

static void step(struct peers *peers, struct fake_connection *connection, uint8_t what)
{
	switch (what) {
	case 0:
		connection->left = true;
		break;
	case 1:
		connection->full = !connection->full;
		break;
	case 2:
		if (connection->state == FAKE_SOCKET)
			connection->state = FAKE_CONNECTED;
		break;
	case 3:
		if (connection->state == FAKE_SOCKET)
			connection->state = FAKE_REFUSED;
		break;
	case 4:
		send_bytes(peers, connection);
		break;
	case 5:
		send_hello(peers, connection);
		break;
	case 6:
		send_join(peers, connection);
		break;
	case 7:
		send_challenge(peers, connection);
		break;
	case 8:
		send_answer(peers, connection);
		break;
	case 9:
		send_greeting(peers, connection);
		break;
	default:
		send_greeting_answer(peers, connection);
	}
}

static bool act(void *context)
{
	struct peers *peers = context;
	uint8_t what = script_next(&peers->script) % 13;

	if (!peers->script.left)
		return false;
	if (what == 11) {
		fake_network.waiting += script_next(&peers->script);
	} else if (what == 12) {
		fake_network.now += 25 * script_next(&peers->script);
	} else if (fake_network.count) {
		/* counted from the last */
		unsigned back = script_next(&peers->script) % fake_network.count;

		step(peers, &fake_network.connections[fake_network.count - 1 - back], what);
	}
	return true;
}

/* ---- what must hold ---- */

/* A stranger gets a challenge if it names the run, and nothing more without both proofs. */
static void check_newcomer(const struct peers *peers, const struct fake_connection *connection)
{
	struct hello hello, own_hello;
	struct challenge challenge;
	struct join join, own_join;

	if (!connection->out)
		return;
	check(copy(&hello, connection->received, 0, sizeof(hello), connection->taken));
	check(memcmp(hello.magic, magic, sizeof(magic)) == 0);
	check(memcmp(hello.run, peers->launch.run, sizeof(hello.run)) == 0);
	check(hello.port == peers->launch.ports[0]);
	if (connection->out <= sizeof(challenge))
		return;
	own_hello = hello;
	prove_hello(peers->run, &own_hello);
	check(memcmp(&hello, &own_hello, sizeof(hello)) == 0);
	memcpy(&challenge, connection->sent, sizeof(challenge));
	check(copy(&join, connection->received, sizeof(hello), sizeof(join), connection->taken));
	own_join = join;
	prove_join(peers->run, &hello, &challenge, &own_join);
	check(memcmp(&join, &own_join, sizeof(join)) == 0);
}

/* A rank sends its join only to a rank 0 that has the key. */
static void check_leader(const struct peers *peers, const struct fake_connection *connection)
{
	struct hello hello;
	struct challenge challenge, own;

	if (connection->out <= sizeof(hello))
		return;
	memcpy(&hello, connection->sent, sizeof(hello));
	check(copy(&challenge, connection->received, 0, sizeof(challenge), connection->taken));
	own = challenge;
	prove_challenge(peers->run, &hello, &own);
	check(memcmp(&challenge, &own, sizeof(own)) == 0);
}

/* A rank answers the greetings of ranks only. */
static void check_caller(const struct peers *peers, const struct fake_connection *connection)
{
	struct greeting greeting, own;

	if (!connection->out)
		return;
	check(copy(&greeting, connection->received, 0, sizeof(greeting), connection->taken));
	own = greeting;
	prove_greeting(peers->run, &own);
	check(memcmp(&greeting, &own, sizeof(own)) == 0);
	check(memcmp(greeting.session, peers->run->session, TCP_NONCE) == 0);
	check(greeting.to == peers->run->rank && greeting.from < peers->run->world);
}

static void check_texts(const struct peers *peers, int r, const char *error)
{
	/* a rank that failed may have received half of them */
	for (unsigned rank = 0; rank < peers->run->world && (r == 0 || !peers->run->rank); rank++)
		check(memchr(peers->members[rank].name, 0, TCP_NAME_MAX) != NULL);
	check(r == 0 || (*error && memchr(error, 0, COMM_ERROR_MAX)));
}

static void meet(struct peers *peers)
{
	struct tcp_run *run = peers->run;
	char error[COMM_ERROR_MAX] = "";
	int r = tcp_meet(run, &peers->launch, error);

	check_texts(peers, r, error);
	for (unsigned rank = 0; rank < run->world; rank++) {
		const struct fake_connection *control = fake_connection(run->controls[rank]);

		check(run->rank || rank == 0 || r < 0 || (control && !control->closed));
		check(!control || !run->rank == control->accepted);
		io_close(run->controls[rank]);
	}
	io_close(run->listener);
	for (unsigned i = 0; i < fake_network.count; i++) {
		const struct fake_connection *connection = &fake_network.connections[i];

		(run->rank ? check_leader : check_newcomer)(peers, connection);
	}
}

static void open_lanes(struct peers *peers)
{
	unsigned ranks[WORLD_MAX] = {0, 1, 2, 3};
	struct tcp_run *run = peers->run;
	struct comm_tcp tcp = {.run = run, .ranks = ranks};

	tcp.base.world = run->world;
	tcp.base.rank = run->rank;
	memset(run->session, 's', sizeof(run->session));
	int r = tcp_lanes_open(&tcp, tcp_listen(NULL, 0));

	check(r == 0 || *run->reason);
	tcp_lanes_close(&tcp);
	for (unsigned i = 0; i < fake_network.count; i++)
		if (fake_network.connections[i].accepted)
			check_caller(peers, &fake_network.connections[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct peers peers;
	struct tcp_run run = {.members = peers.members, .controls = peers.controls};

	peers = (struct peers){.script = {data, size}, .run = &run};
	uint8_t role = script_next(&peers.script);

	setenv(KEY_VARIABLE, key_text, 1);
	fake_network_start(act, &peers);
	run.events = run.listener = -1;
	run.world = peers.launch.world = 2 + role / 3 % (WORLD_MAX - 1);
	run.rank = peers.launch.rank = role % 3 == 1 || role & 0x80;
	memset(peers.launch.run, 'r', sizeof(peers.launch.run));
	memset(peers.controls, -1, sizeof(peers.controls));
	strcpy(peers.launch.address, "127.0.0.1");
	peers.launch.local_rank = peers.launch.local_world = -1;
	peers.launch.seconds = SECONDS;
	for (unsigned i = 0; i < LAUNCH_PORTS; i++)
		peers.launch.ports[i] = (uint16_t)(30000 + i);
	if (role % 3 == 2) {
		check(key_get(run.key, run.reason) == 0);
		open_lanes(&peers);
	} else {
		meet(&peers);
	}
	for (unsigned i = 0; i < fake_network.count; i++)
		check(fake_network.connections[i].closed);
	return 0;
}
