#include "tools/store/store.h"
#include "format/base/system/clock.h"
#include "tools/store/store_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
	CONNECTIONS_DEFAULT = 16,
	DELAY_FIRST_MS = 50,
	DELAY_MAX_MS = 5000,
	RETRY_AFTER_MAX_S = 60,
	POLL_MS = 100,       /* how often options.stopped is asked */
	HEDGE_MS = 10,       /* between two looks for late requests */
	STARTS_AT_ONCE = 16, /* before libcurl sends them: a new connection costs 0.1 ms */
	LATER_MS = 1000,     /* that a request waits while urgent ones begin */
};

int store_open(const struct store_options *options, struct store **ret_store,
	       struct packimg_error *error)
{
	struct store *store = calloc(1, sizeof(*store));

	if (!store || curl_global_init(CURL_GLOBAL_DEFAULT)) {
		free(store);
		return packimg_fail(error, -ENOMEM, "out of memory");
	}
	store->options = *options;
	TAILQ_INIT(&store->urgent);
	TAILQ_INIT(&store->later);
	TAILQ_INIT(&store->running);
	if (!store->options.connections)
		store->options.connections = CONNECTIONS_DEFAULT;
	store->bytes_max = UINT64_MAX;
	int r = store_settings_read(&store->settings, error);
	if (!r) {
		store->multi = curl_multi_init();
		if (!store->multi)
			r = packimg_fail(error, -ENOMEM, "out of memory");
	}
	if (!r) {
		r = loop_init(&store->loop, store->multi, &store->counters.bytes);
		if (r) {
			curl_multi_cleanup(store->multi);
			store->multi = NULL;
			packimg_say(error, "a store's requests need epoll: %s", strerror(-r));
		}
	}
	if (r) {
		store_close(store);
		return r;
	}
	curl_multi_setopt(store->multi, CURLMOPT_MAXCONNECTS, (long)STORE_CONNECTIONS_MAX);
	*ret_store = store;
	return 0;
}

/* Cancels the attempt if it has not ended. Accepts NULL. */
static void attempt_free(struct attempt *attempt)
{
	if (!attempt)
		return;
	struct transfer *transfer = attempt->transfer;
	struct store *store = transfer->store;

	for (unsigned i = 0; i < TRANSFER_ATTEMPTS; i++)
		if (transfer->attempts[i] == attempt)
			transfer->attempts[i] = NULL;
	if (attempt->easy) {
		curl_multi_remove_handle(store->multi, attempt->easy);
		curl_easy_cleanup(attempt->easy);
	}
	curl_slist_free_all(attempt->headers);
	reply_deinit(&attempt->reply);
	free(attempt);
	store->running_count--;
}

static void transfer_stop(struct transfer *transfer)
{
	for (unsigned i = 0; i < TRANSFER_ATTEMPTS; i++)
		attempt_free(transfer->attempts[i]);
}

static void transfer_free(struct transfer *transfer)
{
	transfer_stop(transfer);
	free(transfer);
}

static void free_list(struct transfers *list)
{
	struct transfer *transfer;

	while ((transfer = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, transfer, link);
		transfer_free(transfer);
	}
}

void store_close(struct store *store)
{
	if (!store)
		return;
	free_list(&store->running);
	free_list(&store->urgent);
	free_list(&store->later);
	curl_multi_cleanup(store->multi);
	if (store->multi)
		loop_deinit(&store->loop);
	store_credentials_clear(&store->credentials);
	free(store);
}

void store_set_limits(struct store *store, unsigned connections, uint64_t bytes)
{
	store->options.connections = connections;
	store->bytes_max = bytes;
}

struct store_counters store_counters(const struct store *store)
{
	return store->counters;
}

unsigned store_paths(const struct store *store, const char *paths[STORE_PATHS_MAX])
{
	const curl_version_info_data *build = curl_version_info(CURLVERSION_NOW);
	const struct store_settings *settings = &store->settings;
	const char *const all[] = {
		settings->config_file,
		settings->credentials_file,
		getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
		settings->ca_bundle,
		build->cainfo,
		build->capath,
	};
	unsigned count = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i] && *all[i])
			paths[count++] = all[i];
	return count;
}

int store_object_init(struct store_object *object, const char *address, struct packimg_error *error)
{
	*object = (struct store_object){.size = STORE_SIZE_UNKNOWN};
	return store_address_parse(address, &object->address, error);
}

void store_object_deinit(struct store_object *object)
{
	store_address_deinit(&object->address);
}

static struct transfers *waiting_list(struct store *store, const struct transfer *transfer)
{
	return transfer->request.urgent ? &store->urgent : &store->later;
}

/* The waiting transfer after this one; after NULL the first one, NULL after the last one. */
static struct transfer *next_waiting(const struct store *store, const struct transfer *transfer)
{
	struct transfer *next = transfer ? TAILQ_NEXT(transfer, link) : TAILQ_FIRST(&store->urgent);

	if (!next && (!transfer || transfer->request.urgent))
		next = TAILQ_FIRST(&store->later);
	return next;
}

/* Transfers that have not ended. */
static int count_transfers(const struct store *store)
{
	return (int)(store->submitted - store->ended);
}

int store_submit(struct store *store, const struct store_request *request)
{
	struct transfer *transfer = calloc(1, sizeof(*transfer));

	if (!transfer)
		return -ENOMEM;
	transfer->store = store;
	transfer->request = *request;
	transfer->number = store->submitted++;
	transfer->submitted_ms = clock_ms();
	TAILQ_INSERT_TAIL(waiting_list(store, transfer), transfer, link);
	return 0;
}

/* Frees a transfer that is in no list any more, and calls `done`. last: its attempt, or NULL. */
static void transfer_finish(struct transfer *transfer, const struct attempt *last, int status,
			    const struct packimg_error *error)
{
	const struct store_result result = {
		.status = status,
		.error = error,
		.etag = last ? last->reply.etag : "",
		.reply = last && last->reply.body ? last->reply.body : "",
	};

	transfer->store->ended++;
	if (transfer->request.done)
		transfer->request.done(transfer->request.context, &result);
	transfer_free(transfer);
}

static size_t on_header(char *line, size_t unit, size_t count, void *context)
{
	struct attempt *attempt = context;

	(void)unit;
	return reply_take_header(&attempt->reply, line, count) ? count : 0;
}

/* Whether the reply is the range that was asked for, of the version that was read before. */
static int check_range(const struct attempt *attempt, struct packimg_error *error)
{
	const struct store_request *request = &attempt->transfer->request;
	const struct reply *reply = &attempt->reply;
	const struct store_object *object = request->object;
	const char *name = object->address.shown;
	uint64_t last = request->offset + request->size - 1;

	if (reply->status != 206)
		return packimg_fail(error, -EBADMSG,
				    "%.200s: the server ignores requests for a part of a file "
				    "(Range); download the file, and give its path",
				    name);
	if (reply->encoded)
		return packimg_fail(error, -EBADMSG,
				    "%.200s: the object has a Content-Encoding; store it without",
				    name);
	if (!reply->has_range || reply->first != request->offset + attempt->at ||
	    reply->last > last || (reply->last < last && !request->size_unknown))
		return packimg_fail(error, -EBADMSG,
				    "%.200s: the server answers with another range than the one "
				    "asked for",
				    name);
	if (reply->total == STORE_SIZE_UNKNOWN && object->size == STORE_SIZE_UNKNOWN)
		return packimg_fail(error, -EBADMSG, "%.200s: the server does not say its size",
				    name);
	bool other_size = object->size != STORE_SIZE_UNKNOWN &&
			  reply->total != STORE_SIZE_UNKNOWN && reply->total != object->size;
	if (other_size && object->described_by)
		return packimg_fail(error, -ESTALE,
				    "%.200s is not the shard that %.200s describes; write that "
				    "again, with packimg seal",
				    name, object->described_by);
	if (other_size ||
	    (object->etag[0] && reply->etag[0] && strcmp(reply->etag, object->etag) != 0))
		return packimg_fail(error, -ESTALE, "%.200s was replaced while it was read", name);
	return 0;
}

/* The first reply tells the version; weak ETags cannot be compared by If-Match. */
static void learn_version(struct store_object *object, const struct reply *reply)
{
	if (object->etag[0] || object->modified[0])
		return;
	if (object->size == STORE_SIZE_UNKNOWN)
		object->size = reply->total;
	if (reply->etag[0] == '"')
		strcpy(object->etag, reply->etag);
	strcpy(object->modified, reply->modified);
}

/* Takes a part of the range, without what another attempt has brought. An error ends the transfer.
 */
static int take_range(struct attempt *attempt, const char *bytes, size_t size)
{
	struct transfer *transfer = attempt->transfer;
	const struct store_request *request = &transfer->request;

	if (!attempt->checked) {
		int r = check_range(attempt, &attempt->fault_error);

		if (r)
			return r;
		learn_version(request->object, &attempt->reply);
		attempt->checked = true;
	}
	if (size > attempt->reply.last - (request->offset + attempt->at) + 1)
		return packimg_fail(&attempt->fault_error, -EBADMSG,
				    "%.200s: the server sends more than it has announced",
				    request->object->address.shown);
	transfer->store->counters.bytes += size;
	attempt->at += size;
	if (attempt->at <= transfer->received)
		return 0;
	size_t fresh = attempt->at - transfer->received;
	int r = request->take(request->context, bytes + size - fresh, fresh);
	if (r)
		return packimg_fail(&attempt->fault_error, r, "%.200s: %s",
				    request->object->address.shown, strerror(-r));
	transfer->received = attempt->at;
	transfer->failures = 0;
	return 0;
}

static size_t on_body(char *bytes, size_t unit, size_t count, void *context)
{
	struct attempt *attempt = context;

	(void)unit;
	if (attempt->transfer->request.method != STORE_GET || attempt->reply.status / 100 != 2)
		return reply_take_body(&attempt->reply, bytes, count) ? count : 0;
	attempt->fault = take_range(attempt, bytes, count);
	return attempt->fault ? 0 : count;
}

static int attempt_begin(struct attempt *attempt, struct packimg_error *error)
{
	struct store *store = attempt->transfer->store;
	int r = attempt_prepare(attempt, error);

	if (r)
		return r;
	curl_easy_setopt(attempt->easy, CURLOPT_PRIVATE, attempt);
	curl_easy_setopt(attempt->easy, CURLOPT_ERRORBUFFER, attempt->curl_error);
	curl_easy_setopt(attempt->easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(attempt->easy, CURLOPT_HEADERDATA, attempt);
	curl_easy_setopt(attempt->easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(attempt->easy, CURLOPT_WRITEDATA, attempt);
	if (curl_multi_add_handle(store->multi, attempt->easy) != CURLM_OK)
		return packimg_fail(error, -ENOMEM, "out of memory");
	store->counters.requests++;
	return 0;
}

/* Makes the transfer's attempt of that number, from the first byte on that is not there. */
static int transfer_start(struct transfer *transfer, unsigned number, struct packimg_error *error)
{
	struct attempt *attempt = calloc(1, sizeof(*attempt));

	if (!attempt)
		return packimg_fail(error, -ENOMEM, "out of memory");
	attempt->transfer = transfer;
	attempt->at = transfer->received;
	attempt->queues = transfer->store->loop.queues;
	transfer->attempts[number] = attempt;
	transfer->store->running_count++;
	int r = attempt_begin(attempt, error);
	if (r)
		attempt_free(attempt);
	return r;
}

static bool may_start(const struct store *store)
{
	return store->running_count < store->options.connections &&
	       (store->running_count < STORE_CONNECTIONS_FEW ||
		store->running_bytes < store->bytes_max);
}

/*
 * Makes the oldest of the other transfers the first urgent one if it has waited long: there may
 * always be urgent ones, such as those of another feed, and what was requested in time may be due.
 * Returns true if it has.
 */
static bool promote_oldest(struct store *store, int64_t now_ms)
{
	struct transfer *transfer = TAILQ_FIRST(&store->later);

	if (!transfer || now_ms - transfer->submitted_ms <= LATER_MS)
		return false;
	TAILQ_REMOVE(&store->later, transfer, link);
	transfer->request.urgent = true;
	TAILQ_INSERT_HEAD(&store->urgent, transfer, link);
	return true;
}

/* Starts waiting transfers whose time has come, while the limits allow it. */
static void start_waiting(struct store *store)
{
	const int64_t now_ms = clock_ms();
	struct transfer *transfer, *next;
	unsigned starts = 0;
	bool promotes = false;

	if (may_start(store) && !store->promoted)
		promotes = store->promoted = promote_oldest(store, now_ms);
	transfer = next_waiting(store, NULL);
	for (; transfer && may_start(store) && starts < STARTS_AT_ONCE; transfer = next) {
		struct packimg_error error = {{0}};

		next = next_waiting(store, transfer);
		if (transfer->start_ms > now_ms)
			continue;
		TAILQ_REMOVE(waiting_list(store, transfer), transfer, link);
		starts++;
		int r = transfer_start(transfer, 0, &error);
		if (r) {
			transfer_finish(transfer, NULL, r, &error);
			return; /* `done` may have changed the list */
		}
		transfer->start_ms = now_ms;
		transfer->hedged = false;
		TAILQ_INSERT_TAIL(&store->running, transfer, link);
		store->running_bytes += transfer->request.size;
	}
	if (starts && !promotes)
		store->promoted = false;
}

static bool is_late(const struct transfer *transfer, int64_t now_ms)
{
	const struct store_request *request = &transfer->request;

	return request->method == STORE_GET && !request->size_unknown &&
	       transfer->received < request->size && !transfer->hedged &&
	       now_ms - transfer->start_ms >
		       hedging_late_ms(&transfer->store->hedging, request->size);
}

/* Requests ranges that are late a second time. */
static void hedge_late(struct store *store)
{
	const int64_t now_ms = clock_ms();

	if (!store->options.hedge || now_ms - store->hedged_ms < HEDGE_MS)
		return;
	store->hedged_ms = now_ms;
	struct transfer *transfer = TAILQ_FIRST(&store->running);

	for (; transfer; transfer = TAILQ_NEXT(transfer, link)) {
		if (!is_late(transfer, now_ms))
			continue;
		if (store->running_count >= STORE_CONNECTIONS_MAX ||
		    !hedging_spend(&store->hedging))
			return;
		transfer->hedged = true;
		if (!transfer_start(transfer, 1, NULL))
			store->counters.hedges++;
	}
}

/* A random part of a delay that doubles with each failure; or what the server asks for. */
static int64_t delay_ms(const struct attempt *attempt)
{
	const struct transfer *transfer = attempt->transfer;
	unsigned doublings = transfer->failures ? transfer->failures - 1 : 0;
	uint64_t most_ms = DELAY_MAX_MS;
	curl_off_t asked_s = 0;
	uint32_t random = 0;

	if (doublings < 10 && (DELAY_FIRST_MS << doublings) < DELAY_MAX_MS)
		most_ms = DELAY_FIRST_MS << doublings;
	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
		random = UINT32_MAX / 2;
	curl_easy_getinfo(attempt->easy, CURLINFO_RETRY_AFTER, &asked_s);
	if (asked_s > RETRY_AFTER_MAX_S)
		asked_s = RETRY_AFTER_MAX_S;
	return (int64_t)asked_s * 1000 + (int64_t)(most_ms * random >> 32);
}

/* Whether another attempt may succeed where libcurl has failed. */
static bool code_retryable(CURLcode code)
{
	static const CURLcode codes[] = {
		CURLE_COULDNT_RESOLVE_PROXY,
		CURLE_COULDNT_RESOLVE_HOST,
		CURLE_COULDNT_CONNECT,
		CURLE_OPERATION_TIMEDOUT,
		CURLE_SSL_CONNECT_ERROR,
		CURLE_GOT_NOTHING,
		CURLE_SEND_ERROR,
		CURLE_RECV_ERROR,
		CURLE_PARTIAL_FILE,
		CURLE_WEIRD_SERVER_REPLY,
	};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (code == codes[i])
			return true;
	return false;
}

/* What libcurl says; some of its messages quote a proxy's address, which may hold a password. */
static const char *curl_text(const char *said, CURLcode code)
{
	return said[0] && !strchr(said, '@') ? said : curl_easy_strerror(code);
}

/* Why libcurl has failed, with a remedy where there is one. */
static int fail_code(const struct attempt *attempt, CURLcode code, struct packimg_error *error)
{
	const char *name = attempt->transfer->request.object->address.shown;

	switch (code) {
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
		return packimg_fail(error, -EACCES,
				    "%.160s: the server's certificate cannot be checked: %s; name "
				    "a file of CA certificates in AWS_CA_BUNDLE or SSL_CERT_FILE",
				    name, curl_text(attempt->curl_error, code));
	case CURLE_WRITE_ERROR:
		return packimg_fail(error, -EBADMSG,
				    "%.200s: the server's headers or its error "
				    "message have no end",
				    name);
	case CURLE_OUT_OF_MEMORY: /* libcurl's answer to a header of more than 100 KiB, too */
		return packimg_fail(error, -ENOMEM,
				    "%.200s: the server's headers are too long, or memory is out",
				    name);
	default:
		return packimg_fail(error, -ECONNABORTED, "%.160s: %s", name,
				    curl_text(attempt->curl_error, code));
	}
}

/* What an attempt has come to. */
enum outcome {
	OUTCOME_DONE,
	OUTCOME_RETRY, /* after a delay */
	OUTCOME_AGAIN, /* at once: with new credentials, or in another region */
	OUTCOME_FAILED,
};

/* The region that a reply names instead of the one that was asked. */
static bool correct_region(struct attempt *attempt, const struct reply_fields *fields)
{
	struct transfer *transfer = attempt->transfer;
	struct store_object *object = transfer->request.object;
	const struct reply *reply = &attempt->reply;
	const char *region = reply->region[0] ? reply->region : fields->region;

	if (transfer->moved || !object->address.s3 || !region[0] ||
	    region[strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-")] ||
	    (reply->status != 301 && reply->status != 307 && reply->status != 400))
		return false;
	transfer->moved = true;
	strcpy(object->region, region);
	return true;
}

static enum outcome judge_refusal(struct attempt *attempt, struct packimg_error *error,
				  int *ret_status)
{
	struct transfer *transfer = attempt->transfer;
	const struct reply *reply = &attempt->reply;
	const struct store_credentials *credentials = &transfer->store->credentials;
	struct store_object *object = transfer->request.object;
	struct reply_fields fields;

	reply_parse(reply->body ? reply->body : "", reply->body_size, &fields);
	*ret_status = reply_fail(reply, &fields, object, object->address.s3 && credentials->key[0],
				 credentials->origin, error);
	if (reply_retryable(reply, &fields))
		return OUTCOME_RETRY;
	if (correct_region(attempt, &fields))
		return OUTCOME_AGAIN;
	if (!transfer->renewed && object->address.s3 && reply_expired(reply, &fields)) {
		transfer->renewed = true;
		transfer->store->has_credentials = false;
		return OUTCOME_AGAIN;
	}
	return OUTCOME_FAILED;
}

/* A reply of success to PUT, POST or DELETE may have an error in its body. */
static bool has_error_body(const struct reply *reply)
{
	struct reply_fields fields;

	if (!reply->body)
		return false;
	reply_parse(reply->body, reply->body_size, &fields);
	return fields.code[0] != '\0';
}

static enum outcome judge(struct attempt *attempt, CURLcode code, struct packimg_error *error,
			  int *ret_status)
{
	const struct store_request *request = &attempt->transfer->request;

	*ret_status = 0;
	if (attempt->fault) {
		*ret_status = attempt->fault;
		*error = attempt->fault_error;
		return OUTCOME_FAILED;
	}
	if (code != CURLE_OK) {
		*ret_status = fail_code(attempt, code, error);
		return code_retryable(code) ? OUTCOME_RETRY : OUTCOME_FAILED;
	}
	if (attempt->reply.status / 100 != 2 || has_error_body(&attempt->reply))
		return judge_refusal(attempt, error, ret_status);
	if (request->method != STORE_GET || attempt->at == request->size ||
	    (request->size_unknown && attempt->checked &&
	     attempt->at == attempt->reply.last + 1 - request->offset))
		return OUTCOME_DONE;
	*ret_status = packimg_fail(error, -ECONNABORTED, "%.200s: the reply ends early",
				   request->object->address.shown);
	return OUTCOME_RETRY;
}

/* Whether a failed attempt leaves another one behind, which goes on alone. */
static bool is_spare(const struct attempt *attempt)
{
	const struct transfer *transfer = attempt->transfer;

	for (unsigned i = 0; i < TRANSFER_ATTEMPTS; i++)
		if (transfer->attempts[i] && transfer->attempts[i] != attempt)
			return true;
	return false;
}

/* Counts a failure. Returns true if there have been enough. */
static bool has_failed(struct transfer *transfer)
{
	const int64_t now_ms = clock_ms();
	bool known = transfer->request.object->size != STORE_SIZE_UNKNOWN;

	if (!transfer->failures++)
		transfer->failing_ms = now_ms;
	return transfer->retries >= STORE_RETRIES_MAX ||
	       (transfer->failures >= STORE_FAILURES_MAX &&
		(!known || now_ms - transfer->failing_ms >= transfer->store->options.patience_ms));
}

/* Ends an attempt, and the transfer with it, or makes it wait for the next one. */
static void attempt_ended(struct attempt *attempt, CURLcode code)
{
	struct transfer *transfer = attempt->transfer;
	struct store *store = transfer->store;
	struct packimg_error error = {{0}};
	int status;
	enum outcome outcome = judge(attempt, code, &error, &status);

	if (code == CURLE_OK)
		attempt_measure(attempt);
	if (outcome == OUTCOME_RETRY && is_spare(attempt)) {
		attempt_free(attempt);
		return;
	}
	TAILQ_REMOVE(&store->running, transfer, link);
	store->running_bytes -= transfer->request.size;
	if (outcome == OUTCOME_RETRY && has_failed(transfer)) {
		struct packimg_error cause = error;

		packimg_say(&error, "%.400s (after %u attempts)", cause.text,
			    transfer->retries + 1);
		status = -ECONNABORTED;
		outcome = OUTCOME_FAILED;
	}
	if (outcome == OUTCOME_DONE && !transfer->retries)
		hedging_note(&store->hedging, transfer->request.size,
			     clock_ms() - transfer->start_ms);
	if (outcome == OUTCOME_DONE || outcome == OUTCOME_FAILED) {
		transfer_finish(transfer, attempt, status, &error);
		return;
	}
	transfer->start_ms = clock_ms() + (outcome == OUTCOME_RETRY ? delay_ms(attempt) : 0);
	transfer->retries++;
	store->counters.retries++;
	transfer_stop(transfer);
	/* those that wait were submitted later */
	TAILQ_INSERT_HEAD(waiting_list(store, transfer), transfer, link);
}

/* Ends the attempts that libcurl has finished. */
static void end_attempts(struct store *store)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(store->multi, &left))) {
		struct attempt *attempt;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&attempt);
		attempt_ended(attempt, message->data.result);
	}
}

static void stop_all(struct store *store)
{
	const struct packimg_error error = {"interrupted"};

	store->running_bytes = 0;
	while (count_transfers(store)) {
		struct transfer *transfer = TAILQ_FIRST(&store->running);

		if (transfer) {
			TAILQ_REMOVE(&store->running, transfer, link);
		} else {
			transfer = next_waiting(store, NULL);
			TAILQ_REMOVE(waiting_list(store, transfer), transfer, link);
		}
		transfer_finish(transfer, NULL, -EINTR, &error);
	}
}

/* Milliseconds until the next waiting transfer may start, at most most_ms. */
static int wait_ms(const struct store *store, int most_ms)
{
	const struct transfer *at = next_waiting(store, NULL);

	for (; at && may_start(store); at = next_waiting(store, at)) {
		int left_ms = clock_left_ms(at->start_ms);

		most_ms = left_ms < most_ms ? left_ms : most_ms;
	}
	return most_ms;
}

int store_poll(struct store *store, struct pollfd *fds, unsigned count, int timeout_ms)
{
	if (store->options.stopped && store->options.stopped())
		stop_all(store);
	start_waiting(store);
	loop_start(&store->loop);
	end_attempts(store);
	hedge_late(store);
	loop_wait(&store->loop, fds, count, wait_ms(store, timeout_ms));
	end_attempts(store);
	return count_transfers(store);
}

void store_wake(struct store *store)
{
	loop_wake(&store->loop);
}

int store_run(struct store *store, int timeout_ms)
{
	const int64_t deadline_ms = clock_ms() + timeout_ms;
	const uint64_t ended = store->ended;

	while (store->ended == ended && count_transfers(store)) {
		int left_ms = timeout_ms < 0 ? POLL_MS : clock_left_ms(deadline_ms);

		store_poll(store, NULL, 0, left_ms < POLL_MS ? left_ms : POLL_MS);
		if (left_ms == 0)
			break;
	}
	return count_transfers(store);
}

/* Waiting for one request. */
struct answer {
	const struct store_request *request;
	bool ended;
	int status;
	struct packimg_error error;
};

static int answer_take(void *context, const void *bytes, size_t size)
{
	const struct answer *answer = context;

	return answer->request->take(answer->request->context, bytes, size);
}

static void answer_done(void *context, const struct store_result *result)
{
	struct answer *answer = context;

	answer->ended = true;
	answer->status = result->status;
	answer->error = *result->error;
	if (answer->request->done)
		answer->request->done(answer->request->context, result);
}

int store_ask(struct store *store, const struct store_request *request, struct packimg_error *error)
{
	struct answer answer = {.request = request};
	struct store_request copy = *request;

	copy.take = answer_take;
	copy.done = answer_done;
	copy.context = &answer;
	if (store_submit(store, &copy))
		return packimg_fail(error, -ENOMEM, "out of memory");
	while (!answer.ended)
		store_poll(store, NULL, 0, POLL_MS);
	if (answer.status && error)
		*error = answer.error;
	return answer.status;
}
