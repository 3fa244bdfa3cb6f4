/*
 * libfeed: the client of loaderd.
 *
 * A feed is one subscription: batches of one dataset, through one pipeline, in one order.
 * feed_open() connects and subscribes; feed_next() hands out batches in order as pointers into
 * shared memory to be read; each stays valid until feed_release() gives it back, and several may be
 * held (up to the feed's slots). A feed belongs to one thread at a time, but for feed_release(),
 * which any thread may call, also while another waits in feed_next(). The library starts no thread,
 * writes no log, and never exits. A daemon that goes away is waited for and the feed opened again
 * at its position: the next batch is the next batch, bit for bit, after those that had been
 * published before; what is held stays valid. A feed opened with FEED_RECONNECT_NEVER is
 * -ECONNRESET then.
 *
 * Functions return 0, a negative errno, or a positive outcome named here. Error texts are sentences
 * for a person. After fork() a feed belongs to the parent: in the child its functions are -ECHILD,
 * and feed_close() only frees memory. Protocol: proto/SPEC.md, loaderd-protocol(7).
 */
#ifndef LOADERD_FEED_H
#define LOADERD_FEED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FEED_ERROR_MAX 1024 /* bytes of an error text, terminator included */
#define FEED_END       1    /* outcome of feed_next: the last batch has been delivered */

enum feed_last { FEED_LAST_DROP = 0, FEED_LAST_SHORT = 1 };
enum feed_bad { FEED_BAD_SUBSTITUTE = 0, FEED_BAD_SKIP = 1, FEED_BAD_FAIL = 2 };
enum feed_writable {
	FEED_READ_ONLY = 0,
	/*
	 * the ring itself, for devices that cannot register what is not; -EPERM: the daemon does
	 * not allow it
	 */
	FEED_WRITABLE = 1,
	/*
	 * pages that become this process's own when it writes: nobody else sees it, and the next
	 * batch there is whole again
	 */
	FEED_OWN = 2,
};
enum feed_element { FEED_U8 = 1, FEED_F16 = 2, FEED_BF16 = 3, FEED_F32 = 4 };
enum feed_reconnect { FEED_RECONNECT = 0, FEED_RECONNECT_NEVER = 1 };
#define FEED_RECONNECT_FOREVER UINT32_MAX /* a reconnect_timeout_ms */
enum feed_layout { FEED_NHWC = 1, FEED_NCHW = 2 };
enum feed_field_type {
	FEED_INT64 = 1,
	FEED_FLOAT64 = 2,
	FEED_BYTES = 3,
	FEED_JSON = 4, /* UTF-8 text of one JSON value */
	/* UTF-8; FEED_BYTES to programs that were built before feed_options had cut_values */
	FEED_TEXT = 5,
};
/*
 * a name in feed_options.fields: the samples' source names, as text; unless the dataset has a field
 * of that name
 */
#define FEED_KEY "__key__"
/*
 * a name in feed_options.fields: what of the pipeline is left to the client, for each sample, whose
 * image comes without it; loaderd-protocol(7), "Deferred steps"
 */
#define FEED_DEFERRED "__deferred__"
enum feed_sample_flag {
	/* could not be decoded; another sample stands in its place */
	FEED_SAMPLE_SUBSTITUTED = 1,
	FEED_SAMPLE_FIELD_MISSING = 2, /* a delivered field had no value, it is zero */
	/* a value was longer than field_bytes, which cut_values has allowed */
	FEED_SAMPLE_FIELD_CUT = 4,
};

struct feed;
struct feed_daemon;

/* Zero, or feed_options_init(), means default everywhere; strings may be NULL. */
struct feed_options {
	size_t size; /* sizeof(struct feed_options): lets the structure grow */
	/*
	 * path of the daemon's socket, "@name" for an abstract one; NULL: see feed(3), ENVIRONMENT
	 */
	const char *socket;
	/*
	 * path of the .pimg, whose files this process opens with its own rights; relative ones are
	 * made absolute here
	 */
	const char *dataset;
	const char *pipeline; /* transform grammar, see loaderd(1) */
	const char *name;     /* shown by `loaderctl status` */
	uint32_t batch_size;  /* samples per batch of this rank; 0: 256 */
	uint32_t shuffle;     /* 0: stored order */
	uint64_t seed;
	uint64_t epoch; /* position to start at */
	uint64_t batch;
	uint64_t epoch_end; /* FEED_END before this epoch; 0: never */
	uint32_t rank;
	uint32_t world; /* 0 counts as 1 */
	uint32_t last;  /* enum feed_last */
	uint32_t bad;   /* enum feed_bad */
	uint32_t slots; /* batches of shared memory; 0: the daemon chooses */
	/*
	 * most room for a bytes, text or JSON value; 0: what the longest takes, or 256 where the
	 * file does not say or values are cut
	 */
	uint32_t field_bytes;
	/* names of extra fields to deliver, FEED_KEY and FEED_DEFERRED among them */
	const char *const *fields;
	uint32_t field_count;
	uint32_t open_timeout_ms; /* for connecting and subscribing; 0: 30,000 */
	/* enum feed_writable: what may be written through the pointers of a batch */
	uint32_t writable;
	uint32_t reserved; /* 0 */
	/* enum feed_reconnect: when the daemon goes away, wait for the next one, or fail at once */
	uint32_t reconnect;
	uint32_t reconnect_timeout_ms; /* to wait for it; 0: 60,000; FEED_RECONNECT_FOREVER */
	/*
	 * 1: values longer than field_bytes come cut; 0: they refuse the feed where the file tells,
	 * else the first one ends it
	 */
	uint32_t cut_values;
	/*
	 * so often each sample is in its batch, every time augmented anew; batch_size times world
	 * is a multiple. 0: once
	 */
	uint32_t repeats;
};

struct feed_info {
	size_t size; /* in: sizeof(struct feed_info) */
	uint64_t feed_id;
	uint64_t samples;           /* in the dataset */
	uint64_t batches_per_epoch; /* of this rank */
	uint32_t classes;
	uint32_t slots;
	uint32_t batch_size;
	/*
	 * the whole ring as mapped, for registration with a device; another one after a reconnect,
	 * NULL while waiting for one
	 */
	const void *memory;
	size_t memory_size; /* bytes */
	/*
	 * stands for its content: the same where a position means the same batch; zeros: the daemon
	 * is too old to say
	 */
	uint8_t dataset_uuid[16];
	uint64_t reconnects; /* times that the feed was opened again since feed_open() */
};

/*
 * One batch. Pointers lead into shared memory and are valid until the batch is released. The
 * numbers here are checked copies; what the pointers lead to is the daemon's word, and one that was
 * taken over may change it while it is read: a label, a sample's number or a record's size is to be
 * copied and checked before it becomes an index.
 */
struct feed_batch {
	size_t size; /* in: sizeof(struct feed_batch) */
	/* of the batch in this feed: 1, 2, 3 ... ; names it in feed_release */
	uint64_t number;
	uint64_t epoch;
	uint64_t batch; /* within the epoch, of this rank */
	uint32_t count; /* samples */
	uint32_t height, width, channels;
	uint32_t element; /* enum feed_element */
	uint32_t layout;  /* enum feed_layout */
	uint32_t bad;     /* samples substituted or skipped */
	uint32_t last;    /* 1: the epoch's last batch of this rank */
	/*
	 * [count][height][width][channels], or [count][channels][height][width], dense, 64-byte
	 * aligned
	 */
	const void *images;
	size_t image_bytes;      /* of the whole batch */
	const int32_t *labels;   /* [count], -1 for none */
	const uint64_t *samples; /* [count], index in the dataset */
	const uint8_t *flags;    /* [count], enum feed_sample_flag */
	uint64_t publish_ns;     /* CLOCK_MONOTONIC, when the daemon finished it */
	/* of feed_info when it came: batches with the same number lie in the same memory */
	uint64_t reconnects;
	/*
	 * the images as the daemon wrote them, in feed_info.memory, for a device that knows it;
	 * with FEED_OWN they are not at `images`
	 */
	const void *shared_images;
};

struct feed_field {
	const char *name; /* lives as long as the feed */
	enum feed_field_type type;
	/* int64_t[count], double[count], or records of stride bytes: uint32 size, then the bytes */
	const void *values;
	size_t stride; /* bytes from sample to sample */
};

/* Fills in size and zeroes the rest. */
void feed_options_init(struct feed_options *options);

/*
 * Connects, subscribes, maps the ring. On failure error (may be NULL, FEED_ERROR_MAX bytes
 * otherwise) says what is wrong, naming the field and, for a pipeline, the position. -ECONNREFUSED
 * / -ENOENT: no daemon there; -ENOENT / -EACCES / -EMFILE with a text that begins with "dataset:":
 * this process cannot open one of the dataset's files; -EINVAL: a field is wrong; -EDQUOT: a limit
 * of the daemon; -ENOTSUP: a daemon that is too old for writable; -ETIMEDOUT; others as the
 * daemon's.
 */
int feed_open(const struct feed_options *options, struct feed **ret_feed, char *error);
/* Accepts NULL. Batches still held become invalid. */
void feed_close(struct feed *feed);
/*
 * Hangs up: the daemon stops working for this feed and frees its side at once, while batches held
 * stay readable until feed_close(). feed_next() delivers what was published before and is -ENOTCONN
 * then.
 */
void feed_disconnect(struct feed *feed);
int feed_info(const struct feed *feed, struct feed_info *info);
/*
 * For who registers memory with a device: keeps feed_info.memory mapped until feed_drop_memory(),
 * also when a reconnect has replaced it and its last batch is released. After one, first unregister
 * the old memory, then drop it; a ring that is kept counts against this user's limits. -EINVAL: not
 * the feed's memory, or not kept.
 */
int feed_keep_memory(struct feed *feed, const void *memory);
int feed_drop_memory(struct feed *feed, const void *memory);
/*
 * What the last reconnect was, a sentence for a log; "" when there was none; valid until the next
 * one.
 */
const char *feed_reconnect_text(const struct feed *feed);

/*
 * Waits up to timeout_ms (negative: for ever; 0: does not wait) for the next batch. 0, FEED_END,
 * -ETIMEDOUT, -ECONNRESET (the daemon went away, and the feed could or should not be opened again),
 * -ENOBUFS (the caller holds every slot: release one), -EBADMSG (the feed failed, feed_error() says
 * why), -EPROTO (the daemon broke the protocol), -ESTALE (the next daemon found another dataset
 * under the path); others as feed_open's, when opening again was refused. An attempt to open again
 * that is under way is not cut short by timeout_ms, but by open_timeout_ms.
 */
int feed_next(struct feed *feed, int timeout_ms, struct feed_batch *batch);
/*
 * Gives a batch back, in any order, from any thread; only batch->number is read. -EINVAL: not held.
 */
int feed_release(struct feed *feed, const struct feed_batch *batch);
/* Extra field number `field` (order of feed_options.fields) of a held batch. */
int feed_field(const struct feed *feed, const struct feed_batch *batch, uint32_t field,
	       struct feed_field *ret_field);
/* Position to open at to get the batch after the last one handed out. */
int feed_position(const struct feed *feed, uint64_t *ret_epoch, uint64_t *ret_batch);
/*
 * Text of the last failure of this feed, "" when there was none; valid until the feed's next call.
 */
const char *feed_error(const struct feed *feed);
/*
 * A descriptor that is readable when a wait is over, one and the same for the feed's life; for
 * event loops: after it fires call feed_next with timeout 0.
 */
int feed_fd(const struct feed *feed);

#define FEED_LONGEST_UNKNOWN UINT64_MAX

struct feed_dataset_field {
	const char *name;
	/* enum feed_field_type; 0: not known, for one where the daemon is too old to say */
	uint32_t type;
	/*
	 * bytes of the longest value: what field_bytes must allow; FEED_LONGEST_UNKNOWN; means
	 * nothing for numbers
	 */
	uint64_t longest;
};

/*
 * Facts about a dataset, from the daemon, to which its first file is handed. Strings live until
 * feed_dataset_free.
 */
struct feed_dataset {
	uint64_t samples;
	uint32_t classes;
	const char *const *class_names;
	int has_statistics;
	double mean[3], std[3]; /* R, G, B in 0..255 */
	const char *metadata;   /* lines of "key=value" */
	uint8_t uuid[16];       /* as feed_info.dataset_uuid */
	uint32_t field_count;
	const struct feed_dataset_field *fields; /* what feed_options.fields may name */
};
/* Errors as feed_open's. */
int feed_dataset(const char *socket, const char *path, struct feed_dataset **ret_dataset,
		 char *error);

/*
 * The socket that NULL stands for in feed_options and feed_dataset() now, whether or not a daemon
 * listens there. Bytes without the final zero; -ENAMETOOLONG: the buffer, of size bytes, is too
 * small.
 */
int feed_default_socket(char *buffer, size_t size);
void feed_dataset_free(struct feed_dataset *dataset);

/*
 * Starts a private daemon: a child `loaderd` on a socket of its own that only this user may use,
 * which ends when the calling process does, however that happens. Returns when it serves. binary
 * NULL: $LOADERD, else loaderd beside the running program, else from PATH. threads 0: the daemon's
 * default. What it writes to standard error is kept (the first 256 KiB, see feed_daemon_log),
 * unless $LOADERD_STDERR is "inherit". -ENOENT: no such program; -ECHILD: it ended while starting;
 * -ETIMEDOUT: not ready within 30 s. Feeds of this process that are opened again start it again
 * first, on the same socket and with what it was started with; feeds of other processes wait for
 * that.
 */
int feed_daemon_start(const char *binary, unsigned threads, struct feed_daemon **ret_daemon,
		      char *error);
/* Zero means default everywhere. */
struct feed_daemon_options {
	size_t size;        /* sizeof(struct feed_daemon_options) */
	const char *binary; /* as of feed_daemon_start() */
	/*
	 * "SECTION.KEY=VALUE", any key of loaderd.conf(5), such as "io.mode=uring" or
	 * "limits.slots=128"
	 */
	const char *const *settings;
	uint32_t setting_count;
	uint32_t threads;
};
/*
 * feed_daemon_start() with more to say. -EINVAL: the daemon does not take a setting, and error says
 * why.
 */
int feed_daemon_start_with(const struct feed_daemon_options *options,
			   struct feed_daemon **ret_daemon, char *error);
/*
 * Starts it again if it has ended, as feeds do. 0 also where it runs. Errors as feed_daemon_start.
 */
int feed_daemon_restart(struct feed_daemon *daemon, char *error);
/* What feed_options.socket wants. */
const char *feed_daemon_socket(const struct feed_daemon *daemon);
long feed_daemon_pid(const struct feed_daemon *daemon);
/* 1 while it runs, 0 after it ended. */
int feed_daemon_alive(const struct feed_daemon *daemon);
/*
 * Copies the end of what it wrote to standard error, terminated and cut to size bytes, whole lines
 * where possible. Returns its length.
 */
size_t feed_daemon_log(const struct feed_daemon *daemon, char *buffer, size_t size);
/* Stops it and waits: it gets five seconds to drain, then it is killed. Accepts NULL. */
void feed_daemon_stop(struct feed_daemon *daemon);

#ifdef __cplusplus
}
#endif
#endif
