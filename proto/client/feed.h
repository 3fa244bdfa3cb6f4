/*
 * libfeed: the client of loaderd.
 *
 * A feed is one subscription: batches of one dataset, through one pipeline, in one order.
 * feed_open() connects and subscribes; feed_next() returns batches in order, as pointers into
 * shared memory. A batch is valid until feed_release(); the caller may hold several at once, up to
 * the feed's slots. A feed belongs to one thread at a time, except that any thread may call
 * feed_release(), even while another waits in feed_next(). The library starts no thread, writes no
 * log, and never exits.
 *
 * If the daemon goes away, the feed waits for the next daemon and reopens at its position. Batches
 * published before the loss come first, then the sequence continues bit for bit; held batches stay
 * valid. With FEED_RECONNECT_NEVER, feed_next() returns -ECONNRESET instead.
 *
 * Functions return 0, a negative errno, or a positive outcome named here. Error texts are sentences
 * for the user. After fork() a feed belongs to the parent: in the child its functions return
 * -ECHILD, and feed_close() only frees memory. Protocol: proto/SPEC.md, loaderd-protocol(7).
 */
#ifndef LOADERD_FEED_H
#define LOADERD_FEED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FEED_ERROR_MAX 1024 /* bytes of an error text, terminator included */
#define FEED_END       1    /* outcome of feed_next: all batches have been delivered */
/* batches that feed_want() accepts beyond the feed's slots before one must be taken */
#define FEED_WANTS_AHEAD 16

enum feed_last { FEED_LAST_DROP = 0, FEED_LAST_SHORT = 1 };
enum feed_bad { FEED_BAD_SUBSTITUTE = 0, FEED_BAD_SKIP = 1, FEED_BAD_FAIL = 2 };
enum feed_writable {
	FEED_READ_ONLY = 0,
	/*
	 * The ring itself, for devices that cannot register read-only memory. -EPERM if the daemon
	 * does not allow it.
	 */
	FEED_WRITABLE = 1,
	/*
	 * Private copy-on-write pages: writes are invisible to other processes and discarded when
	 * the slot gets its next batch.
	 */
	FEED_OWN = 2,
};
/* Types of numbers. Images have one of the first four. */
enum feed_element {
	FEED_NO_ELEMENT = 0, /* bytes and text */
	FEED_U8 = 1,
	FEED_F16 = 2,
	FEED_BF16 = 3,
	FEED_F32 = 4,
	FEED_U16 = 5,
	FEED_I16 = 6,
	FEED_I32 = 7,
	FEED_I64 = 8,
	FEED_U64 = 9,
	FEED_F64 = 10,
};
/* What a value is, as the dataset's schema says. */
enum feed_role {
	FEED_ROLE_NONE = 0, /* the samples' flags */
	FEED_ROLE_IMAGE = 1,
	FEED_ROLE_MASK = 2,
	FEED_ROLE_RASTER = 3,
	FEED_ROLE_BOXES = 4,
	FEED_ROLE_KEYPOINTS = 5,
	FEED_ROLE_POLYGONS = 6,
	FEED_ROLE_CLASS = 7,
	FEED_ROLE_VALUE = 8,
	FEED_ROLE_TEXT = 9,
	FEED_ROLE_BYTES = 10,
	FEED_ROLE_KEY = 11,
	FEED_ROLE_NUMBER = 12,
	FEED_ROLE_JSON = 13,
};
/* Whether all samples of a batch have as many elements. */
enum feed_kind { FEED_DENSE = 1, FEED_RAGGED = 2 };
enum feed_reconnect { FEED_RECONNECT = 0, FEED_RECONNECT_NEVER = 1 };
#define FEED_RECONNECT_FOREVER UINT32_MAX /* value for reconnect_timeout_ms */
/*
 * FEED_PATCHES: images have any number of patches, which feed_section() describes: section 0 is
 * FEED_RAGGED, and a row is a patch.
 */
enum feed_layout { FEED_NHWC = 1, FEED_NCHW = 2, FEED_PATCHES = 3 };
enum feed_field_type {
	FEED_INT64 = 1,
	FEED_FLOAT64 = 2,
	FEED_BYTES = 3,
	FEED_JSON = 4, /* UTF-8 text of one JSON value */
	/* UTF-8; reported as FEED_BYTES to programs built before feed_options had cut_values */
	FEED_TEXT = 5,
};
/*
 * A name for feed_options.fields: the samples' source names, as text, unless the dataset has a
 * field of that name.
 */
#define FEED_KEY "__key__"
/*
 * A name for feed_options.fields: for each sample, the transforms left to the client. Images
 * come without these transforms applied; loaderd-protocol(7), "Deferred transforms".
 */
#define FEED_DEFERRED "__deferred__"
enum feed_sample_flag {
	/* could not be decoded; another sample replaces it */
	FEED_SAMPLE_SUBSTITUTED = 1,
	FEED_SAMPLE_FIELD_MISSING = 2, /* a delivered field had no value and is zero */
	/* a value was longer than field_bytes and was truncated, which cut_values allows */
	FEED_SAMPLE_FIELD_CUT = 4,
};

struct feed;
struct feed_daemon;

/* When an epoch of several parts ends. */
enum feed_ends {
	FEED_ENDS_FIRST = 0, /* before some part would begin anew */
	FEED_ENDS_LAST = 1,  /* when as many samples of each part have come as it has */
};

/*
 * A dataset, and which of its samples a feed draws and how often. Zeros choose all, each once per
 * epoch. At most one of weights, class_weights, balanced and classes_per_batch is set.
 */
struct feed_part {
	size_t size;         /* sizeof(struct feed_part) */
	const char *dataset; /* as feed_options.dataset */
	const char *where;   /* a filter, see loaderd(1), FILTERS; NULL or "": all samples */
	/*
	 * [sample_count] the only samples to draw, in their order unless shuffled, as often as they
	 * are listed; NULL: all samples
	 */
	const uint64_t *samples;
	uint64_t sample_count;
	/*
	 * [weight_count] draws with replacement, in proportion to a weight of each entry of
	 * `samples`, or else of each sample of the dataset; as many for each stage, or for all
	 */
	const float *weights;
	uint64_t weight_count;
	/* [class_weight_count] the same, by a weight of each sample of a class */
	const float *class_weights;
	uint64_t class_weight_count;
	uint32_t balanced; /* 1: draws with replacement, every class equally likely */
	/*
	 * Every batch over all ranks has as many samples of each of so many classes, which must
	 * divide batch_size times world. 0: no such batches.
	 */
	uint32_t classes_per_batch;
};

/* A stretch of the training with shares and weights of its own. */
struct feed_stage {
	uint64_t
		from; /* its first batch over all ranks, counted from epoch 0 on; 0 for the first */
	/*
	 * [part_count] samples of each part in every period of as many samples as the sum, which is
	 * at most 65,536; NULL if there is one part
	 */
	const uint32_t *shares;
};

/* A shape of finished images, in pixels. */
struct feed_bucket {
	uint32_t width, height;
	uint32_t batch_size; /* samples per batch and rank, at most feed_options'; 0: as many */
};

/* The order of a feed of one or several datasets. See loaderd(1), ORDER AND RESUME. */
struct feed_order {
	size_t size;                          /* sizeof(struct feed_order) */
	const struct feed_part *const *parts; /* [part_count], at most 1,024 */
	const struct feed_stage *stages;      /* [stage_count], needed if there are several parts */
	uint32_t part_count, stage_count;
	uint64_t epoch_samples; /* samples of an epoch over all ranks; 0: as many as the parts have
				 */
	uint32_t ends;          /* enum feed_ends */
	uint32_t part_batches;  /* 1: all samples of a batch over all ranks are of one part */
	/*
	 * [bucket_count], at most 256: all samples of a batch over all ranks are of one bucket,
	 * that of the nearest aspect ratio, and bucket_resize makes their images of its size. With
	 * one part and the defaults for what is above.
	 */
	const struct feed_bucket *buckets;
	uint32_t bucket_count;
	/*
	 * Above 0: an epoch permutes blocks of so many neighbouring samples, and within each group
	 * of group_blocks successive blocks its samples, so that large pieces of the files are read
	 * at a time; of a mixture in each part. Shuffled, without weights, classes and buckets.
	 * struct feed_dataset suggests values.
	 */
	uint32_t block_samples;
	uint32_t group_blocks; /* at least 1 with block_samples */
	/*
	 * With one part and the defaults for what is above, buckets included: each batch of a rank
	 * has as many samples as have this many tokens together, at most batch_size. 0: batch_size
	 * samples. The patches that patch_resize makes of an image are tokens.
	 */
	uint32_t batch_tokens;
	/* A column of integers: tokens of each sample beside its patches; NULL or "": none */
	const char *tokens_field;
};

/*
 * Memory files of a dataset whose files are still being filled while the feed reads them, by
 * another process of this user; proto/SPEC.md, "Filling files".
 */
struct feed_filling {
	size_t size; /* sizeof(struct feed_filling) */
	int map, page;
};

/* Zeros, as set by feed_options_init(), select the defaults; strings may be NULL. */
struct feed_options {
	size_t size; /* sizeof(struct feed_options), so that later versions can append members */
	/*
	 * Path of the daemon's socket, or "@name" for an abstract one. NULL selects the default of
	 * feed(3), ENVIRONMENT.
	 */
	const char *socket;
	/*
	 * Path of the .pimg. This process opens its files with its own credentials. A relative path
	 * is made absolute. Or an address in a store, s3://BUCKET/KEY, https:// or http://, which
	 * loaderd-fetch copies while the feed reads it; see feed(3), Stores.
	 */
	const char *dataset;
	const char *pipeline; /* transform grammar, see loaderd(1) */
	const char *name;     /* shown by `loaderctl status` */
	uint32_t batch_size;  /* samples per batch of this rank; 0 means 256 */
	uint32_t shuffle;     /* nonzero shuffles; 0 keeps the stored order */
	uint64_t seed;
	uint64_t epoch; /* position to start at */
	uint64_t batch;
	uint64_t epoch_end; /* exclusive end epoch; 0 means unlimited */
	uint32_t rank;
	uint32_t world; /* 0 means 1 */
	uint32_t last;  /* enum feed_last */
	uint32_t bad;   /* enum feed_bad */
	uint32_t slots; /* ring slots, each for one batch; 0 lets the daemon choose */
	/*
	 * Capacity of a bytes, text or JSON value. 0 means the longest value's size, or 256 if the
	 * file does not record it or cut_values is set.
	 */
	uint32_t field_bytes;
	/* names of extra fields to deliver; may include FEED_KEY and FEED_DEFERRED */
	const char *const *fields;
	uint32_t field_count;
	uint32_t open_timeout_ms; /* for connecting and subscribing; 0 means 30,000 */
	/* enum feed_writable: whether the caller may write to a batch's memory */
	uint32_t writable;
	uint32_t reserved; /* must be 0 */
	/* enum feed_reconnect: wait for the next daemon after a loss, or fail at once */
	uint32_t reconnect;
	/* how long to wait for the next daemon; 0 means 60,000; or FEED_RECONNECT_FOREVER */
	uint32_t reconnect_timeout_ms;
	/*
	 * 1 truncates values longer than field_bytes. 0 makes such values an error: of feed_open()
	 * if the file records their length, else of the batch with the first such value.
	 */
	uint32_t cut_values;
	/*
	 * Number of times each sample appears in its batch, with independent augmentation (batch
	 * augmentation). Must divide batch_size times world. 0 means 1.
	 */
	uint32_t repeats;
	/*
	 * 1 opens a wanted feed: feed_want() lists the samples of each batch. batch_size is then
	 * the most samples of a batch, at most 65,536; shuffle, epoch, batch, epoch_end, rank,
	 * world, last and repeats must be 0.
	 */
	uint32_t wanted;
	uint32_t value_count;
	/*
	 * Names of the dataset's schema to deliver beside image, label and sample number, which
	 * every feed delivers: see feed_section(). Excludes `fields`. Values are never truncated:
	 * with field_bytes 0 a file that does not record their longest is an error.
	 */
	const char *const *values;
	/*
	 * Called about once a second while feed_open() waits for a daemon that examines samples,
	 * `done` of `total`. A negative errno ends feed_open() with it; return 0 to go on. May be
	 * NULL. feed_open() waits as long as the daemon makes progress.
	 */
	int (*progress)(void *user, uint64_t done, uint64_t total);
	void *progress_user;
	/* Replaces `dataset`. Copied, lists as well, which are kept for reopening the feed. */
	const struct feed_order *order;
	/*
	 * Files that are being filled; NULL: they are complete. feed_open() duplicates the
	 * descriptors for reopening the feed; the caller keeps its own. -ENOTSUP if the daemon is
	 * too old, -EINVAL if a descriptor is no such memory file or there are several parts.
	 */
	const struct feed_filling *filling;
	/*
	 * Called like progress, while feed_open() waits for the headers and sections of a dataset
	 * in a store: with bytes of them, of which `total` is 0 as long as it is not known.
	 */
	int (*fetching)(void *user, uint64_t done, uint64_t total);
};

struct feed_info {
	size_t size; /* set by the caller: sizeof(struct feed_info) */
	uint64_t feed_id;
	uint64_t samples;           /* in the dataset */
	uint64_t batches_per_epoch; /* for this rank; 0 for a wanted feed */
	uint32_t classes;
	uint32_t slots;
	uint32_t batch_size;
	/*
	 * The whole ring as mapped, for registration with a device. Changes with each reconnect;
	 * NULL while waiting for a daemon.
	 */
	const void *memory;
	size_t memory_size; /* bytes */
	/*
	 * UUID of the content: if it is equal, a position means the same batch. Zeros if the daemon
	 * is too old to report it.
	 */
	uint8_t dataset_uuid[16];
	uint64_t reconnects; /* number of times that the feed was reopened since feed_open() */
	/* sections of a batch, for feed_section(); 0 with `fields`, or if the daemon is too old */
	uint32_t section_count;
	uint32_t part_count; /* 0 unless opened with `order`; see feed_opened_part() */
	/* of a feed with `order`: samples of an epoch over all ranks, without repeats */
	uint64_t epoch_samples;
	/*
	 * of a feed with `order`: equal if the same samples come at the same positions, given equal
	 * contents of the parts, seed and shuffling
	 */
	uint64_t order_hash;
	/*
	 * of these sections, the last so many are targets: 1 for a weight of each class, "target",
	 * 2 for two labels and the weight of the first, "target" and "share"; 0 if the pipeline
	 * makes none
	 */
	uint32_t target_count;
	uint32_t reserved;
	/* of a feed with batch_tokens: batches of an epoch of all ranks together; else 0 */
	uint64_t epoch_batches;
};

/* A part as the daemon has opened it. */
struct feed_opened_part {
	size_t size; /* set by the caller: sizeof(struct feed_opened_part) */
	uint8_t uuid[16];
	uint64_t first;   /* number of the part's sample 0 among the samples of the feed */
	uint64_t samples; /* in its dataset */
	uint64_t chosen;  /* samples, or entries of the list, that are drawn from */
};

/*
 * One batch. Pointers refer to shared memory and are valid until the batch is released. The scalar
 * members are checked copies. The memory behind the pointers is not trusted: a compromised daemon
 * may change it while it is read, so copy and check a label, sample number or record size before
 * using it as an index.
 */
struct feed_batch {
	size_t size; /* set by the caller: sizeof(struct feed_batch) */
	/* number of the batch in this feed: 1, 2, 3 ...; identifies it in feed_release() */
	uint64_t number;
	uint64_t epoch;
	uint64_t batch; /* index within the epoch, for this rank; number - 1 in a wanted feed */
	uint32_t count; /* samples */
	uint32_t height, width, channels;
	uint32_t element; /* enum feed_element */
	uint32_t layout;  /* enum feed_layout */
	uint32_t bad;     /* samples substituted or skipped */
	uint32_t last;    /* 1 if this is the rank's last batch of the epoch */
	/*
	 * [count][height][width][channels], or [count][channels][height][width], dense, 64-byte
	 * aligned; of patches, what feed_section() describes: height, width and channels are 0
	 */
	const void *images;
	size_t image_bytes;      /* bytes of all the batch's images */
	const int32_t *labels;   /* [count], -1 for none */
	const uint64_t *samples; /* [count], index in the dataset */
	const uint8_t *flags;    /* [count], enum feed_sample_flag */
	uint64_t publish_ns;     /* CLOCK_MONOTONIC, when the daemon finished it */
	/* feed_info.reconnects when the batch came; equal numbers mean the same ring memory */
	uint64_t reconnects;
	/*
	 * The images as the daemon wrote them, inside feed_info.memory, for a device that has it
	 * registered. Differs from `images` with FEED_OWN.
	 */
	const void *shared_images;
};

struct feed_field {
	const char *name; /* lives as long as the feed */
	enum feed_field_type type;
	/* int64_t[count], double[count], or records of stride bytes: uint32 size, then the value */
	const void *values;
	size_t stride; /* bytes from one sample to the next */
};

/* One section of a batch: a value of each sample. */
struct feed_section {
	size_t size; /* set by the caller: sizeof(struct feed_section) */
	/*
	 * of the value in the schema; lives like the feed. That of the flags is "flags", or
	 * "__flags__" if the schema has a value "flags", or "__flags2__" ... if it has that, too.
	 */
	const char *name;
	const char *schema; /* the value's line of the schema, "" for flags; lives like the feed */
	uint32_t role;      /* enum feed_role */
	uint32_t element;   /* enum feed_element */
	uint32_t kind;      /* enum feed_kind */
	uint32_t dims;      /* sides of a sample's value; of a ragged section, of a row */
	/* The members from here on describe a batch; zero without one. */
	uint32_t shape[4]; /* `dims` sides, in the order in memory */
	uint32_t layout;   /* enum feed_layout of images, else 0 */
	uint32_t row;      /* bytes of a row; 0 if the section is dense */
	/* dense: [count][shape]; ragged: the rows, which feed_rows() finds; 64-byte aligned */
	const void *data;
	size_t bytes; /* behind data */
	/*
	 * ragged: [count] first row and number of rows of each sample. Not trusted: feed_rows()
	 * checks them.
	 */
	const uint32_t *starts, *rows;
	/* name of the view; "" without views, and for what all views share; lives like the feed */
	const char *view_name;
	uint32_t view; /* number of the view's copy, among all copies in the pipeline's order */
	uint32_t reserved;
};

/* Sets size and zeroes the rest. */
void feed_options_init(struct feed_options *options);

/*
 * Connects, subscribes and maps the ring. On failure, error (NULL or FEED_ERROR_MAX bytes) names
 * the offending field and, for a pipeline, the position. -ECONNREFUSED or -ENOENT if no daemon
 * listens; -ENOENT, -EACCES or -EMFILE with a text that begins with "dataset:" if this process
 * cannot open one of the dataset's files; -EINVAL for an invalid option; -EDQUOT if a limit of the
 * daemon is exceeded; -ENOTSUP if the daemon is too old for `writable`, `repeats`, `wanted`,
 * `values` or `order`; -ETIMEDOUT; other errors of the daemon.
 */
int feed_open(const struct feed_options *options, struct feed **ret_feed, char *error);
/* Accepts NULL. Invalidates batches still held. */
void feed_close(struct feed *feed);
/*
 * Hangs up. The daemon stops working for this feed and frees its resources at once; held batches
 * stay readable until feed_close(). feed_next() delivers the batches already published, then
 * returns -ENOTCONN.
 */
void feed_disconnect(struct feed *feed);
int feed_info(const struct feed *feed, struct feed_info *info);
/* Describes part `part`, below feed_info.part_count. -EINVAL if there is no such part. */
int feed_opened_part(const struct feed *feed, uint32_t part, struct feed_opened_part *ret_part);
/*
 * Sets *ret_samples to the number of samples, or of entries of the list, in a bucket of
 * feed_order.buckets. -EINVAL if there is no such bucket.
 */
int feed_bucket_samples(const struct feed *feed, uint32_t bucket, uint64_t *ret_samples);
/*
 * For callers that register memory with a device: keeps feed_info.memory mapped until
 * feed_drop_memory(), even after a reconnect has replaced it and its last batch is released. After
 * a reconnect, unregister the old memory first, then drop it; a kept ring counts against the user's
 * limits. -EINVAL if it is not the feed's memory, or not kept.
 */
int feed_keep_memory(struct feed *feed, const void *memory);
int feed_drop_memory(struct feed *feed, const void *memory);
/*
 * Describes the last reconnect in a sentence for a log; "" if there was none. Valid until the next
 * reconnect.
 */
const char *feed_reconnect_text(const struct feed *feed);
/*
 * Explains in a sentence for a log why the first batch of a dataset in a store is not there: how
 * many of its bytes are, and how fast they come. "" if there is nothing new to say, which is so but
 * two seconds after feed_open() was called, and then each ten seconds. Call it when feed_next() has
 * returned -ETIMEDOUT; valid until the next call.
 */
const char *feed_wait_text(struct feed *feed);

/*
 * Waits for the next batch for up to timeout_ms; negative waits without limit, 0 does not wait.
 * Returns 0, FEED_END, -ETIMEDOUT, -ECONNRESET (the daemon went away, and the feed could not or
 * should not be reopened), -ENOBUFS (the caller holds every slot: release one), -EBADMSG (the feed
 * failed; see feed_error()), -EPROTO (the daemon broke the protocol), -ESTALE (the dataset was
 * replaced before the feed was reopened), -EINVAL (nothing is wanted, in a wanted feed), or an
 * error of feed_open() if reopening was refused. A reopening in progress is bounded by
 * open_timeout_ms, not by timeout_ms.
 */
int feed_next(struct feed *feed, int timeout_ms, struct feed_batch *batch);
/*
 * Releases a batch, in any order and from any thread; reads only batch->number. -EINVAL if it is
 * not held.
 */
int feed_release(struct feed *feed, const struct feed_batch *batch);
/* Returns extra field number `field`, in the order of feed_options.fields, of a held batch. */
int feed_field(const struct feed *feed, const struct feed_batch *batch, uint32_t field,
	       struct feed_field *ret_field);
/*
 * Describes section `section`, below feed_info.section_count, of a held batch, or with batch NULL
 * what all batches have in common. Section 0 has the images, 1 the labels, 2 the sample numbers, 3
 * the flags; feed_options.values follow, in that order and without those. With views, these are
 * those of the first copy; the images of the other copies come next, then of each value its
 * sections by copy. Targets are the last: feed_info.target_count. -EINVAL if there is no such
 * section, or the batch is not held.
 */
int feed_section(const struct feed *feed, const struct feed_batch *batch, uint32_t section,
		 struct feed_section *ret_section);
/*
 * Returns the number of the section of that name, of the first copy of the first view; -ENOENT if
 * there is none.
 */
int feed_section_find(const struct feed *feed, const char *name);
/*
 * Sets *ret_rows to the rows of sample `sample` in a ragged section, and returns their number.
 * -EINVAL if the section is not ragged or is none of a batch; -EPROTO if what the daemon wrote
 * there lies outside the section. sample must be below the batch's count.
 */
int64_t feed_rows(const struct feed_section *section, uint32_t sample, const void **ret_rows);
/*
 * Asks a wanted feed for its next batch: `count` samples, in this order. feed_next() returns the
 * batches in the order in which they were asked for; ask for some ahead, so that the daemon can
 * make them while earlier ones are used. Copies the list, which may contain duplicates. A sample's
 * content depends on the seed, the epoch, the sample number and, for a duplicate, on how many equal
 * numbers precede it in the list. After a reconnect, the feed asks again for what it has not
 * returned. -EAGAIN if slots + FEED_WANTS_AHEAD batches are wanted and not returned; -EINVAL if the
 * feed is not a wanted one, count is 0 or above batch_size, or a number is not below
 * feed_info.samples; -ENOMEM; -ECHILD after a fork. On an error the batch is not wanted. Waits
 * while the daemon does not read; feed_next() reports a lost connection. The text is in
 * feed_error().
 */
int feed_want(struct feed *feed, uint64_t epoch, const uint64_t *samples, uint32_t count);
/*
 * Drops all batches that are wanted and not returned; feed_next() returns only those of later
 * feed_want() calls. -EINVAL if the feed is not a wanted one, -ECHILD after a fork. The text is in
 * feed_error().
 */
int feed_forget(struct feed *feed);
/*
 * Returns the position at which to open a feed that continues after the last batch returned. A
 * wanted feed has no position: returns that batch's epoch, and how many batches were returned.
 */
int feed_position(const struct feed *feed, uint64_t *ret_epoch, uint64_t *ret_batch);
/* Text of the feed's last error, "" if there was none; valid until the feed's next call. */
const char *feed_error(const struct feed *feed);
/*
 * Returns an fd that becomes readable when a wait would end, for event loops: then call feed_next()
 * with timeout 0. The fd is the same for the life of the feed.
 */
int feed_fd(const struct feed *feed);

#define FEED_LONGEST_UNKNOWN UINT64_MAX

struct feed_dataset_field {
	const char *name;
	/* enum feed_field_type; 0 if the daemon is too old to report it */
	uint32_t type;
	/*
	 * Size of the longest value in bytes, the field_bytes needed for it; may be
	 * FEED_LONGEST_UNKNOWN. Meaningless for numbers.
	 */
	uint64_t longest;
};

/*
 * Facts about a dataset, reported by the daemon, which reads them from the dataset's first file.
 * Strings live until feed_dataset_free().
 */
struct feed_dataset {
	uint64_t samples;
	uint32_t classes;
	const char *const *class_names;
	int has_statistics;
	double mean[3], std[3]; /* R, G, B in 0..255 */
	const char *metadata;   /* lines of "key=value" */
	uint8_t uuid[16];       /* same as feed_info.dataset_uuid */
	uint32_t field_count;
	const struct feed_dataset_field *fields; /* fields that feed_options.fields may name */
	/*
	 * For feed_order: blocks of about 1 MiB by the files' bytes per sample, and groups of about
	 * 256 MiB, at most 16,384 samples. 0 if a file of the dataset is missing.
	 */
	uint32_t block_samples, group_blocks;
};
/* Errors as for feed_open(). */
int feed_dataset(const char *socket, const char *path, struct feed_dataset **ret_dataset,
		 char *error);

/*
 * Copies the socket name that NULL currently stands for in feed_options and feed_dataset(), whether
 * or not a daemon listens there. Returns its length without the terminator; -ENAMETOOLONG if it
 * does not fit into size bytes.
 */
int feed_default_socket(char *buffer, size_t size);
void feed_dataset_free(struct feed_dataset *dataset);

/*
 * Starts a private daemon: a child `loaderd` on a socket that only this user may use. The daemon
 * ends when the calling process ends, for whatever reason. Returns once the daemon serves. binary
 * NULL means $LOADERD, else loaderd in the directory of the running program, else from PATH.
 * threads 0 means the daemon's default. The first 256 KiB of its standard error are kept for
 * feed_daemon_log(), unless $LOADERD_STDERR is "inherit". -ENOENT if there is no such program;
 * -ECHILD if it ended while starting; -ETIMEDOUT if it is not ready within 30 s. Reopening a feed
 * of this process restarts an ended daemon first, with the same socket and arguments; feeds of
 * other processes wait for that.
 */
int feed_daemon_start(const char *binary, unsigned threads, struct feed_daemon **ret_daemon,
		      char *error);
/* Zeros select the defaults. */
struct feed_daemon_options {
	size_t size;        /* sizeof(struct feed_daemon_options) */
	const char *binary; /* as for feed_daemon_start() */
	/*
	 * "SECTION.KEY=VALUE", for any key of loaderd.conf(5), such as "io.mode=uring" or
	 * "limits.slots=128"
	 */
	const char *const *settings;
	uint32_t setting_count;
	uint32_t threads;
};
/*
 * feed_daemon_start() with more options. -EINVAL if the daemon rejects a setting; error says why.
 */
int feed_daemon_start_with(const struct feed_daemon_options *options,
			   struct feed_daemon **ret_daemon, char *error);
/*
 * Restarts the daemon if it has ended, as feeds do. Returns 0 also if it runs. Errors as for
 * feed_daemon_start().
 */
int feed_daemon_restart(struct feed_daemon *daemon, char *error);
/* Socket name for feed_options.socket. */
const char *feed_daemon_socket(const struct feed_daemon *daemon);
long feed_daemon_pid(const struct feed_daemon *daemon);
/* Returns 1 while the daemon runs, 0 after it has ended. */
int feed_daemon_alive(const struct feed_daemon *daemon);
/*
 * Copies the end of the daemon's standard error, terminated and cut to size bytes, starting at a
 * whole line if possible. Returns its length.
 */
size_t feed_daemon_log(const struct feed_daemon *daemon, char *buffer, size_t size);
/*
 * Stops the daemon and waits for it: it gets five seconds to drain, then SIGTERM, then SIGKILL.
 * Accepts NULL.
 */
void feed_daemon_stop(struct feed_daemon *daemon);

#ifdef __cplusplus
}
#endif
#endif
