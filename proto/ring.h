/*
 * Shared-memory ring between loaderd (producer) and one client (consumer). SPEC.md, "Ring".
 *
 * Each feed has two memfds. The ring has a header page and `slots` slots; only the daemon writes
 * it. The client's fd for it is read-only, unless the client was granted a writable ring. The ack
 * page is one page that the client writes; the daemon does not trust its contents. Both memfds are
 * sealed against resizing at creation, and with F_SEAL_FUTURE_WRITE once the client has mapped
 * them: after that, no new mapping can be writable and no process can punch holes. The client
 * allocates every page, so its cgroup is charged; before that the daemon touches none.
 *
 * Batches are numbered 1, 2, 3 ... in publishing order. `head` is the number of the last published
 * batch; order[(n - 1) % slots] is the slot of batch n. Any free slot will do, so a batch held for
 * long costs the feed one slot but does not block it. To release batch n, the client stores n into
 * the ack word of its slot. The daemon reuses the slot when the ack word equals the batch number it
 * published there; any other value means "not released yet".
 *
 * Only waiting costs a system call. Before a side waits, it sets its waiting word, checks the ring
 * again, and then polls the connection's socket. The other side sends a Doorbell message only if
 * that word is set. So a single fd carries control messages, wake-ups and hang-up.
 */
#pragma once

#include "proto/own_pages.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	RING_MAGIC = 0x676e6972, /* "ring" in little endian */
	RING_VERSION_1 = 1,      /* struct ring_header: images, labels and up to 16 fields */
	RING_VERSION_2 = 2,      /* struct ring_header_2: a table of sections */
	RING_SLOTS_MAX = 256,
	RING_HEADER_SIZE = 4096,        /* first page of the ring */
	RING_ACK_SIZE = 4096,           /* the ack page has no other content */
	RING_SLOT_HEADER_SIZE = 256,    /* version 1 */
	RING_SLOT_HEADER_2_SIZE = 4096, /* version 2 */
	RING_ALIGN = 4096,    /* alignment of slots; sections within a slot are aligned to 64 */
	RING_FIELDS_MAX = 16, /* version 1 */
	RING_SECTIONS_MAX = 64,
	RING_DIMS_MAX = 4,
	RING_VIEWS_MAX = 16,
	RING_REASON_MAX = 512,
	RING_BATCH_SIZE_MAX = 1 << 20,  /* samples */
	RING_FIELD_BYTES_MAX = 1 << 16, /* capacity of one bytes or JSON value */
};
/* Reason of a feed that ends because the daemon stops; libfeed treats it like a lost connection. */
#define RING_REASON_STOPPING "the daemon is shutting down"
#define RING_IMAGE_SIZE_MAX  (UINT64_C(1) << 40) /* bytes of one batch's images */

enum ring_state {
	RING_RUNNING = 0,
	RING_END = 1,    /* head is the last batch */
	RING_FAILED = 2, /* like RING_END, after an error; see `reason` */
};

/*
 * The header of version 1. Offsets count from the start of the slot. All slots of a ring have the
 * same layout.
 */
struct ring_header {
	uint32_t magic;
	uint32_t version;
	uint32_t slots;
	uint32_t batch_size_max; /* capacity of a slot in samples */
	uint64_t slot_size;      /* bytes, multiple of RING_ALIGN */
	uint64_t image_offset;   /* multiple of 64 */
	uint64_t image_size_max; /* bytes of the image section */
	uint64_t label_offset;   /* int32[batch_size_max], -1 for none */
	uint64_t sample_offset;  /* uint64[batch_size_max], index in the dataset */
	uint64_t flag_offset;    /* uint8[batch_size_max], enum ring_sample_flag */
	uint32_t field_count;
	uint32_t field_bytes; /* upper limit of the size of a field's value */
	struct {
		/*
		 * offset of the values: int64[batch_size_max], double[batch_size_max], or for other
		 * types one record per sample, {uint32 size; data[]}, 4-aligned
		 */
		uint64_t offset;
		uint32_t type;   /* numbered as enum packimg_field_type */
		uint32_t stride; /* bytes per sample */
	} fields[RING_FIELDS_MAX];
	_Alignas(64) _Atomic uint64_t head;
	_Atomic uint32_t state; /* enum ring_state; stored before the final doorbell */
	/* set if the daemon has no free slot and wants a doorbell after the next ack */
	_Atomic uint32_t producer_waits;
	/* NUL-terminated; valid once state is RING_FAILED */
	_Alignas(64) char reason[RING_REASON_MAX];
	/* order[(n - 1) % slots] is the slot of batch n; stored before head */
	_Alignas(64) _Atomic uint32_t order[RING_SLOTS_MAX];
};
_Static_assert(sizeof(struct ring_header) <= RING_HEADER_SIZE, "ring header fits its page");

/*
 * What a section of a slot holds for each sample.
 *
 * RING_DENSE: the same number of elements, sample after sample.
 * RING_RAGGED: any number of rows. The section begins with uint32 start[batch_size_max] and
 * uint32 rows[batch_size_max]; start counts rows from the next multiple of 64 on. The rows of a
 * sample are dense, but those of two samples need not adjoin.
 *
 * The others exist in version 1 only: one record {uint32 size; data[]} of `stride` bytes per
 * sample. They are numbered as the field types of struct ring_header.
 */
enum ring_kind {
	RING_DENSE = 1,
	RING_RAGGED = 2,
	RING_RECORD_BYTES = 3,
	RING_RECORD_JSON = 4,
	RING_RECORD_TEXT = 5,
};

/* Element types. RING_OPAQUE stands for values that are not numbers. */
enum ring_element {
	RING_OPAQUE = 0,
	RING_U8 = 1,
	RING_F16 = 2,
	RING_BF16 = 3,
	RING_F32 = 4,
	RING_U16 = 5,
	RING_I16 = 6,
	RING_I32 = 7,
	RING_I64 = 8,
	RING_U64 = 9,
	RING_F64 = 10,
};

/* One section of a slot, as in the header of version 2. */
struct ring_section {
	uint64_t
		offset; /* from the start of the slot; multiple of 64, of RING_ALIGN for pictures */
	uint64_t room;  /* bytes in every slot */
	uint8_t element; /* enum ring_element */
	uint8_t kind;    /* enum ring_kind */
	uint8_t dims;    /* without the batch's own; of a ragged section, without the rows' */
	uint8_t views;   /* 1 */
	uint32_t row;    /* bytes of a ragged row, else 0 */
	/* bytes from sample to sample; 0 for pictures, whose size may change, and for patches */
	uint64_t stride;
};
_Static_assert(sizeof(struct ring_section) == 32, "version 2 has this size");

/* The sections that every ring begins with; those of other values follow. */
enum { RING_IMAGES, RING_LABELS, RING_SAMPLES, RING_FLAGS, RING_FIRST_FIELD };

/*
 * The constant part of a ring. ring_geometry_init() and the functions after it describe the
 * sections; offsets and slot_size follow from them.
 */
struct ring_geometry {
	uint32_t version;
	uint32_t slots;
	uint32_t batch_size_max;
	uint64_t slot_size;
	uint32_t field_bytes; /* version 1: upper limit of the size of a field's value */
	uint32_t section_count;
	struct ring_section sections[RING_SECTIONS_MAX];
};

/* The part of a header that changes: version 1 from offset 384 on, version 2 from 64 on. */
struct ring_control {
	_Alignas(64) _Atomic uint64_t head;
	_Atomic uint32_t state;
	_Atomic uint32_t producer_waits;
	_Alignas(64) char reason[RING_REASON_MAX];
	_Alignas(64) _Atomic uint32_t order[RING_SLOTS_MAX];
};

/* The header of version 2; members as in struct ring_header. */
struct ring_header_2 {
	uint32_t magic;
	uint32_t version;
	uint32_t slots;
	uint32_t batch_size_max;
	uint64_t slot_size;
	uint32_t section_count;    /* RING_FIRST_FIELD .. RING_SECTIONS_MAX */
	uint32_t slot_header_size; /* RING_SLOT_HEADER_2_SIZE */
	uint64_t reserved[4];      /* zero */
	_Alignas(64) _Atomic uint64_t head;
	_Atomic uint32_t state;
	_Atomic uint32_t producer_waits;
	_Alignas(64) char reason[RING_REASON_MAX];
	_Alignas(64) _Atomic uint32_t order[RING_SLOTS_MAX];
	_Alignas(2048) struct ring_section sections[RING_SECTIONS_MAX];
};
_Static_assert(sizeof(struct ring_header_2) == RING_HEADER_SIZE, "ring header fills its page");

enum ring_sample_flag {
	/* the sample could not be decoded; another sample replaces it */
	RING_SAMPLE_SUBSTITUTED = 1,
	RING_SAMPLE_FIELD_MISSING = 2, /* at least one delivered field had no value and is zero */
	/* at least one variable-size value was longer than field_bytes and was truncated */
	RING_SAMPLE_FIELD_CUT = 4,
};

enum ring_layout { RING_NHWC = 1, RING_NCHW = 2 };

struct ring_slot {
	uint64_t number; /* batch number, as in head */
	uint64_t epoch;
	uint64_t batch; /* index within the epoch, for this rank */
	uint32_t count; /* samples, 1 .. batch_size_max */
	uint32_t height;
	uint32_t width;
	uint32_t channels;   /* 3 or 4 */
	uint32_t element;    /* enum ring_element */
	uint32_t layout;     /* enum ring_layout */
	uint32_t bad;        /* samples substituted or skipped while making this batch */
	uint32_t last;       /* 1 if this is the rank's last batch of the epoch */
	uint64_t publish_ns; /* CLOCK_MONOTONIC */
};
_Static_assert(sizeof(struct ring_slot) <= RING_SLOT_HEADER_SIZE, "slot header fits");

/* Extent of one section in a batch. */
struct ring_extent {
	uint32_t shape[RING_DIMS_MAX]; /* `dims` sides in the order in memory; the rest is 0 */
	uint64_t bytes;                /* used of the section's room */
	uint32_t layout;               /* enum ring_layout of images, else 0 */
	uint32_t reserved;             /* zero */
};
_Static_assert(sizeof(struct ring_extent) == 32, "version 2 has this size");

/*
 * Header of a slot in version 2. Height to layout of `batch` are zero: extents[RING_IMAGES] has
 * them.
 */
struct ring_slot_2 {
	struct ring_slot batch;
	struct ring_extent extents[RING_SECTIONS_MAX];
};
_Static_assert(sizeof(struct ring_slot_2) <= RING_SLOT_HEADER_2_SIZE, "slot header fits");

struct ring_ack {
	/* set if the client polls its socket and wants a doorbell after head or state changes */
	_Atomic uint32_t consumer_waits;
	uint32_t reserved;
	/* time the client has waited for batches; shown in the status, not trusted */
	_Atomic uint64_t stall_ns;
	/* number of the last batch taken by the client; shown in the status, not trusted */
	_Atomic uint64_t taken;
	_Alignas(64) _Atomic uint64_t acks[RING_SLOTS_MAX]; /* indexed by slot */
};
_Static_assert(sizeof(struct ring_ack) <= RING_ACK_SIZE, "acks fit their page");

/*
 * Begins a geometry with images, labels, sample numbers and flags. image_bytes: bytes of one
 * batch's images.
 */
void ring_geometry_init(struct ring_geometry *geometry, uint32_t slots, uint32_t batch_size_max,
			uint64_t image_bytes);
/* Changes a geometry without fields to version 2. image_element: enum ring_element. */
void ring_geometry_upgrade(struct ring_geometry *geometry, uint8_t image_element);
/*
 * Version 2: adds a section of values of `count` elements each. dims: 0 for one element, else 1 or
 * more. Returns -EINVAL for an unknown element or a section too many.
 */
int ring_geometry_dense(struct ring_geometry *geometry, uint8_t element, uint8_t dims,
			uint64_t count);
/*
 * Version 2: adds a section of values of up to rows_max rows of `row` bytes. dims: dimensions of a
 * row. Returns -EINVAL if row is 0 or no multiple of the element, if `start` cannot count the
 * rows, or for a section too many.
 */
int ring_geometry_ragged(struct ring_geometry *geometry, uint8_t element, uint8_t dims,
			 uint32_t row, uint64_t rows_max);
/*
 * Version 2: adds a section of pictures, whose size may change from batch to batch. bytes: of one
 * batch's, at most. Errors as for ring_geometry_dense().
 */
int ring_geometry_pictures(struct ring_geometry *geometry, uint8_t element, uint8_t dims,
			   uint64_t bytes);
/*
 * Version 2: makes the images ragged: of patches of `row` bytes, up to rows_max in a batch, which a
 * sample has where its `start` says. Errors as for ring_geometry_ragged().
 */
int ring_geometry_patches(struct ring_geometry *geometry, uint32_t row, uint64_t rows_max);
/* Bytes of an element; 1 for RING_OPAQUE, 0 if it is unknown. */
uint32_t ring_element_size(uint32_t element);
/* Offset of the rows in a ragged section. */
uint64_t ring_ragged_offset(uint32_t batch_size_max);
/*
 * Version 1: adds the section of a field. type: enum packimg_field_type; room: capacity of one
 * value in bytes, which numbers ignore. Returns -EINVAL for an unknown type or a field too many.
 */
int ring_geometry_field(struct ring_geometry *geometry, uint32_t type, uint32_t room);

/*
 * The daemon's end. One thread at a time begins and publishes slots, in order; any thread may write
 * into a begun slot. The daemon keeps its state here and never reads it back from the ring, which
 * the client may be able to write.
 */
struct ring_producer {
	struct ring_header *header; /* the ring's first page, of either version */
	struct ring_control *control;
	struct ring_geometry layout; /* constant part of *header, with the sections' offsets */
	struct ring_ack *ack;
	int ring_fd, ack_fd;
	uint64_t size;      /* bytes of shared memory, ack page included */
	uint64_t begun;     /* number of the last batch begun */
	uint64_t published; /* number of the last batch published */
	int ended;          /* `state` has left RING_RUNNING */
	uint32_t next;      /* slot at which the search for a free one starts */
	/* as in the header, for batches begun but not published */
	uint32_t order[RING_SLOTS_MAX];
	/* per slot: the batch last begun or published there, 0 if none */
	uint64_t number[RING_SLOTS_MAX];
};

/*
 * Bytes of shared memory for a geometry, ack page included; 0 on overflow or if a limit is
 * exceeded.
 */
uint64_t ring_size(const struct ring_geometry *geometry);
/*
 * Three open file descriptions of one memfd, which leases and access modes tell apart. The owner
 * closes each fd.
 */
struct ring_memory {
	int fd;        /* the daemon's, read-write */
	int client_fd; /* passed to the client */
	int watch_fd;  /* read-only; detects when all others are closed */
};

/*
 * Creates a memfd of `bytes` bytes, sealed against resizing, with no pages allocated. Its mode is
 * 0600, so other users cannot reopen it through /proc; client_writes decides whether client_fd is
 * writable. Errors of memfd_create, fchmod, ftruncate and open.
 */
int ring_memory_new(uint64_t bytes, bool client_writes, struct ring_memory *ret_memory);
/*
 * Returns true while any file description other than watch_fd's refers to the memory: open, mapped,
 * or in flight in a message.
 */
bool ring_memory_open(int watch_fd);
/*
 * Watches the memory's inode: inotify_fd reports IN_DELETE_SELF when its last reference goes,
 * O_PATH fds included. Returns the watch descriptor or a negative errno; -ENOSPC if
 * fs.inotify.max_user_watches is exhausted.
 */
int ring_memory_watch(int watch_fd, int inotify_fd);
/*
 * Call once ring_memory_open() returns false. Returns 0 if nothing in the kernel refers to a page
 * either, so that closing watch_fd frees all the memory. -EBUSY if some page is still referenced
 * and would outlive the close; the kernel needs a sixth of a second to find out. -EPERM if the
 * client has sealed the memory, which makes the check impossible. Errors of open.
 */
int ring_memory_free(int watch_fd);
/*
 * Maps the memory of a ring: ring_fd of ring_size() - RING_ACK_SIZE bytes, ack_fd of RING_ACK_SIZE.
 * On success the producer owns both fds and keeps them open. Touches no page. -EINVAL if
 * ring_size() is 0 or the memory has another size; errors of mmap and fcntl.
 */
int ring_producer_init(struct ring_producer *producer, const struct ring_geometry *geometry,
		       int ring_fd, int ack_fd);
/*
 * Call once the client has mapped both memfds. Seals them, so that no new mapping can be writable
 * and no page can be removed, and writes the header. -ENODATA if the client has not allocated all
 * pages; then none was touched. -EPERM if the client has sealed them itself.
 */
int ring_producer_start(struct ring_producer *producer);
void ring_producer_deinit(struct ring_producer *producer);
/*
 * Returns the slot for the next batch and sets its number only; NULL if no slot is free: then call
 * ring_producer_arm() and try once more.
 */
struct ring_slot *ring_begin(struct ring_producer *producer);
/*
 * Asks the client for a doorbell. A later ring_begin() either finds a slot, or a doorbell will
 * come.
 */
void ring_producer_arm(struct ring_producer *producer);
/* Publishes the oldest begun slot. Returns 1 if the client wants a doorbell, else 0. */
int ring_publish(struct ring_producer *producer);
/*
 * Ends the ring, regularly if reason is NULL. Drops begun slots that are not published. Returns 1
 * if the client wants a doorbell, else 0.
 */
int ring_end(struct ring_producer *producer, const char *reason);
/* Number of published slots that the client has not released. */
uint32_t ring_outstanding(const struct ring_producer *producer);
/*
 * Number of published batches that the client reports as not yet taken, at most ring_outstanding().
 */
uint32_t ring_ready(const struct ring_producer *producer);

/* How a client maps the slots. */
enum ring_mapping {
	RING_MAP_READ_ONLY,
	RING_MAP_WRITABLE, /* for a ring granted as writable */
	RING_MAP_OWN,      /* read-only, plus a private copy-on-write mapping; see ring_show() */
};

/*
 * The client's end, used by libfeed. One thread at a time takes and arms; any thread may release at
 * any time.
 */
struct ring_consumer {
	/* the ring's first page, of either version; the daemon may change any of it at any time */
	const struct ring_header *header;
	const struct ring_control *control;
	/* constant part of *header: copied once, checked, and the only one used */
	struct ring_geometry layout;
	struct ring_ack *ack;
	uint64_t map_size;
	struct own_pages own;
	uint64_t taken; /* number of the last batch taken */
	/* the daemon published into a held slot; nothing it publishes is trusted any more */
	int broken;
	_Atomic uint32_t held_count;
	/* per slot: number of the batch that the client holds there, 0 if none */
	_Atomic uint64_t held[RING_SLOTS_MAX];
	/* version 2: checked extents of each slot's batch, [slots][section_count]; owned */
	struct ring_extent *extents;
};

/*
 * Checks seals and sizes, maps both memfds and allocates all their pages before the daemon writes
 * to them. The caller may close the fds afterwards. -EPROTO if they are not ring memory, -E2BIG if
 * the ring exceeds physical memory, -ENOMEM if the process or its cgroup has too little memory;
 * errors of mmap.
 */
int ring_consumer_map(struct ring_consumer *consumer, int ring_fd, int ack_fd,
		      enum ring_mapping mapping);
/*
 * Call once the daemon has started the ring. Copies the header and checks it, and the bounds of
 * every section, against the mapped size. -EPROTO if this version does not support the ring,
 * -ENOMEM.
 */
int ring_consumer_check(struct ring_consumer *consumer);
void ring_consumer_deinit(struct ring_consumer *consumer);
/*
 * Takes the next batch in order; NULL if none is published. The daemon is broken if the slot's
 * number differs from `taken` afterwards, or if this sets `broken`.
 */
const struct ring_slot *ring_take(struct ring_consumer *consumer);
/*
 * Address at which the caller reads a slot that it has taken. With RING_MAP_OWN the memory is
 * writable and stays valid until the slot is taken again.
 */
const char *ring_show(const struct ring_consumer *consumer, const struct ring_slot *slot);
/*
 * With RING_MAP_OWN, copies the held slots into private pages, so that a forked child keeps their
 * contents when the daemon reuses the slots. Any thread.
 */
void ring_keep_held(const struct ring_consumer *consumer);
/*
 * Copies a slot's header in one pass, because a broken daemon may change the original between check
 * and use.
 */
void ring_copy_slot(const struct ring_slot *slot, struct ring_slot *ret_copy);
/*
 * Version 2: copies the extents of a slot that the caller has taken and checks them against the
 * layout. count: checked number of samples. Returns the copies, valid until the slot is taken
 * again, or NULL if an extent is not sound.
 */
const struct ring_extent *ring_check_extents(struct ring_consumer *consumer,
					     const struct ring_slot *slot, uint32_t count);
/* The extents of a held batch that ring_check_extents() returned; NULL if it is not held. */
const struct ring_extent *ring_extents(const struct ring_consumer *consumer, uint64_t number);
/*
 * Copies the reason of RING_FAILED, RING_REASON_MAX bytes, and terminates it. The text is not
 * validated.
 */
void ring_copy_reason(const struct ring_consumer *consumer, char *ret_reason);
/* Sets or clears the waiting word. After setting it, check the ring again before polling. */
void ring_consumer_arm(struct ring_consumer *consumer, int waiting);
/*
 * Releases a batch. Returns 1 if the daemon wants a doorbell, else 0; -EINVAL if the batch is not
 * held.
 */
int ring_ack(struct ring_consumer *consumer, uint64_t number);
