/*
 * The shared-memory ring between loaderd (producer) and one client (consumer). SPEC.md, "Ring".
 *
 * Two memfds per feed. The ring: a header page and `slots` slots, written by the daemon alone. The
 * client has a read-only description of it, unless it was granted a writable ring. The ack page:
 * one page, which the client writes; the daemon trusts nothing in it. Both are sealed against
 * resizing when they are made, and with F_SEAL_FUTURE_WRITE once the client has mapped them: no
 * further mapping can write then, and nobody can punch holes. The client makes all pages exist, and
 * so pays for them; the daemon touches none before that.
 *
 * Batches are numbered 1, 2, 3 ... in the order published. `head` is the number of the last batch
 * published; order[(n - 1) % slots] says which slot batch n lies in: any free one, so that a client
 * may hold a batch for as long as it likes and loses one slot by it, not the feed. A client
 * releases batch n by storing n into its slot's ack word; the daemon reuses the slot when the ack
 * word equals the number it published there, and takes every other value for "not yet".
 *
 * Waiting costs a system call, nothing else does. A side that is about to wait sets its waiting
 * word, looks again, and then polls the connection's socket; the other side sends a Doorbell
 * message only when it finds that word set. So one descriptor carries control messages, wake-ups,
 * and the news that the other side has gone.
 */
#pragma once

#include "proto/own_pages.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	RING_MAGIC = 0x676e6972, /* "ring" in little endian */
	RING_VERSION = 1,
	RING_SLOTS_MAX = 256,
	RING_HEADER_SIZE = 4096, /* the ring's first page */
	RING_ACK_SIZE = 4096,    /* the whole ack page */
	RING_SLOT_HEADER_SIZE = 256,
	RING_ALIGN = 4096, /* of a slot; sections inside a slot are aligned to 64 */
	RING_FIELDS_MAX = 16,
	RING_REASON_MAX = 512,
	RING_BATCH_SIZE_MAX = 1 << 20,  /* samples */
	RING_FIELD_BYTES_MAX = 1 << 16, /* room per bytes or JSON value */
};
/* A reason that says nothing against the feed: libfeed reports it as a daemon that goes away. */
#define RING_REASON_STOPPING "the daemon is shutting down"
enum { RING_FIELD_TEXT = 5 };                   /* only for clients that have asked for it */
#define RING_IMAGE_SIZE_MAX (UINT64_C(1) << 40) /* bytes of one batch's images */

enum ring_state {
	RING_RUNNING = 0,
	RING_END = 1,    /* head is the last batch there will be */
	RING_FAILED = 2, /* as RING_END, and reason says why */
};

/* Offsets are from the slot's start. Sections have the same place in every slot of a ring. */
struct ring_header {
	uint32_t magic;
	uint32_t version;
	uint32_t slots;
	uint32_t batch_size_max; /* samples a slot has room for */
	uint64_t slot_size;      /* bytes, multiple of RING_ALIGN */
	uint64_t image_offset;   /* multiple of 64 */
	uint64_t image_size_max; /* bytes of the image section */
	uint64_t label_offset;   /* int32[batch_size_max], -1 for none */
	uint64_t sample_offset;  /* uint64[batch_size_max], index in the dataset */
	uint64_t flag_offset;    /* uint8[batch_size_max], enum ring_sample_flag */
	uint32_t field_count;
	uint32_t field_bytes; /* the most room that a field's value has */
	struct {
		/*
		 * int64 or double[batch_size_max]; others: {uint32 size; data[]}, 4-aligned, each
		 */
		uint64_t offset;
		uint32_t type;   /* as enum packimg_field_type */
		uint32_t stride; /* bytes per sample */
	} fields[RING_FIELDS_MAX];
	_Alignas(64) _Atomic uint64_t head;
	_Atomic uint32_t state; /* enum ring_state; stored before the last doorbell */
	/* the daemon has no free slot and wants a doorbell after an ack */
	_Atomic uint32_t producer_waits;
	_Alignas(64) char reason[RING_REASON_MAX]; /* terminated; valid once state is RING_FAILED */
	/* slot of batch n at (n - 1) % slots; written before head */
	_Alignas(64) _Atomic uint32_t order[RING_SLOTS_MAX];
};
_Static_assert(sizeof(struct ring_header) <= RING_HEADER_SIZE, "ring header fits its page");

enum ring_sample_flag {
	/* the sample could not be decoded; another stands in its place */
	RING_SAMPLE_SUBSTITUTED = 1,
	RING_SAMPLE_FIELD_MISSING = 2, /* at least one delivered field had no value, it is zero */
	/* at least one bytes or JSON value was longer than field_bytes */
	RING_SAMPLE_FIELD_CUT = 4,
};

enum ring_element { RING_U8 = 1, RING_F16 = 2, RING_BF16 = 3, RING_F32 = 4 };
enum ring_layout { RING_NHWC = 1, RING_NCHW = 2 };

struct ring_slot {
	uint64_t number; /* of the batch, as in head */
	uint64_t epoch;
	uint64_t batch; /* within the epoch, of this rank */
	uint32_t count; /* samples, 1 .. batch_size_max */
	uint32_t height;
	uint32_t width;
	uint32_t channels;   /* 3 or 4 */
	uint32_t element;    /* enum ring_element */
	uint32_t layout;     /* enum ring_layout */
	uint32_t bad;        /* samples substituted or skipped while this batch was made */
	uint32_t last;       /* 1: the epoch's last batch of this rank */
	uint64_t publish_ns; /* CLOCK_MONOTONIC */
};
_Static_assert(sizeof(struct ring_slot) <= RING_SLOT_HEADER_SIZE, "slot header fits");

struct ring_ack {
	/* the client polls its socket and wants a doorbell after head or state change */
	_Atomic uint32_t consumer_waits;
	uint32_t reserved;
	/* the client's time waiting for batches; shown in status, not trusted */
	_Atomic uint64_t stall_ns;
	/* number of the last batch the client took; shown in status, not trusted */
	_Atomic uint64_t taken;
	_Alignas(64) _Atomic uint64_t acks[RING_SLOTS_MAX]; /* by slot */
};
_Static_assert(sizeof(struct ring_ack) <= RING_ACK_SIZE, "acks fit their page");

/* What a ring is made for. */
struct ring_geometry {
	uint32_t slots;
	uint32_t batch_size_max;
	uint64_t image_size_max; /* bytes of one batch's images */
	uint32_t field_count;
	uint32_t field_bytes;
	uint32_t field_types[RING_FIELDS_MAX]; /* enum packimg_field_type */
	/* bytes of one value, at most field_bytes; 0: field_bytes */
	uint32_t field_rooms[RING_FIELDS_MAX];
};

/*
 * The daemon's end. Slots are begun and published in order by one thread at a time; writing into a
 * begun slot is free for all threads. What it needs to know is in here: the ring is only ever
 * written, since a client may be able to write there too.
 */
struct ring_producer {
	struct ring_header *header;
	struct ring_header layout; /* the constant part of *header: where in a slot sections lie */
	struct ring_ack *ack;
	int ring_fd, ack_fd;
	uint64_t size;      /* bytes of shared memory, ack page included */
	uint64_t begun;     /* number of the last batch begun */
	uint64_t published; /* number of the last batch published */
	int ended;          /* `state` has left RING_RUNNING */
	uint32_t next;      /* slot to look at first */
	/* slot of batch n at (n - 1) % slots, for batches begun and not published */
	uint32_t order[RING_SLOTS_MAX];
	/* by slot: the batch begun or published there last, 0 for none */
	uint64_t number[RING_SLOTS_MAX];
};

/*
 * Bytes of shared memory that a geometry takes, ack page included; 0 when it overflows or breaks a
 * limit.
 */
uint64_t ring_size(const struct ring_geometry *geometry);
/* Three descriptions of a memfd that the kernel counts apart; the owner closes each. */
struct ring_memory {
	int fd;        /* the daemon's, read and write */
	int client_fd; /* the client's */
	int watch_fd;  /* read-only; tells what becomes of the others */
};

/*
 * Makes a memfd of so many bytes, sealed against resizing, that has no pages yet. Users other than
 * the caller's cannot open it anew for writing: client_writes decides whether the client can write.
 * Errors of memfd_create, fchmod, ftruncate and open.
 */
int ring_memory_new(uint64_t bytes, bool client_writes, struct ring_memory *ret_memory);
/* Is the memory open, mapped, or in a message, by any other description than watch_fd's? */
bool ring_memory_open(int watch_fd);
/*
 * Has inotify_fd report IN_DELETE_SELF once the memory's inode goes: when nothing has it in any way
 * any more, O_PATH descriptors included. Returns the watch, or a negative errno: -ENOSPC, beyond
 * fs.inotify.max_user_watches.
 */
int ring_memory_watch(int watch_fd, int inotify_fd);
/*
 * Once ring_memory_open() is false: 0 when nothing in the kernel refers to a page of it either, so
 * that closing watch_fd frees it all. -EBUSY: something does, which takes the kernel a sixth of a
 * second to find out; it keeps those pages after a close. -EPERM: the client has sealed the memory,
 * and this cannot be found out. Errors of open.
 */
int ring_memory_free(int watch_fd);
/*
 * Maps the memory of a ring: ring_fd of ring_size() - RING_ACK_SIZE bytes, ack_fd of RING_ACK_SIZE.
 * Both are taken over on success and stay open. Touches no page. -EINVAL: ring_size() is 0, or the
 * memory has another size; errors of mmap and fcntl.
 */
int ring_producer_init(struct ring_producer *producer, const struct ring_geometry *geometry,
		       int ring_fd, int ack_fd);
/*
 * Once the client has mapped both: seals them, so that no further mapping can write and no page can
 * be taken away, and writes the header. -ENODATA: the client has not made all pages exist; none was
 * touched. -EPERM: the client has sealed them itself.
 */
int ring_producer_start(struct ring_producer *producer);
void ring_producer_deinit(struct ring_producer *producer);
/*
 * Slot for the next batch; NULL when none is free: then ring_producer_arm() and try once more. Sets
 * the slot's number, nothing else.
 */
struct ring_slot *ring_begin(struct ring_producer *producer);
/*
 * Announces that the daemon wants a doorbell; a ring_begin() after it either finds a slot or a
 * doorbell will come.
 */
void ring_producer_arm(struct ring_producer *producer);
/*
 * Publishes the oldest slot begun and not yet published. Returns 1 when the client wants a
 * doorbell, else 0.
 */
int ring_publish(struct ring_producer *producer);
/*
 * Ends the ring; reason NULL is a regular end. Slots begun and not published are dropped. Returns 1
 * when the client wants a doorbell.
 */
int ring_end(struct ring_producer *producer, const char *reason);
/* Slots published that the client has not released yet. */
uint32_t ring_outstanding(const struct ring_producer *producer);
/* Of those, the ones that the client says it has not even taken; at most ring_outstanding(). */
uint32_t ring_ready(const struct ring_producer *producer);

/* How a client maps the slots. */
enum ring_mapping {
	RING_MAP_READ_ONLY,
	RING_MAP_WRITABLE, /* of a ring that was granted so */
	RING_MAP_OWN,      /* read-only, and once more in pages of its own, see ring_show() */
};

/*
 * The client's end, used by libfeed. One thread at a time takes and arms; any thread gives back,
 * also meanwhile.
 */
struct ring_consumer {
	const struct ring_header *header; /* the daemon may change all of it at any time: */
	/* its constant part, copied once, checked, and used from here */
	struct ring_header layout;
	struct ring_ack *ack;
	uint64_t map_size;
	struct own_pages own;
	uint64_t taken; /* number of the last batch handed out */
	/* the daemon published into a slot that is held: what it says is not to be believed */
	int broken;
	_Atomic uint32_t held_count;
	/* by slot: number of the batch the client holds there, 0 for none */
	_Atomic uint64_t held[RING_SLOTS_MAX];
};

/*
 * Checks seals and sizes, maps both and makes all their pages exist, before the daemon writes
 * there. The descriptors may be closed afterwards. -EPROTO: it is no memory for a ring; -E2BIG:
 * it is more than the machine has; -ENOMEM: the process or its control group has not enough for
 * it; errors of mmap.
 */
int ring_consumer_map(struct ring_consumer *consumer, int ring_fd, int ack_fd,
		      enum ring_mapping mapping);
/*
 * Once the daemon has started the ring: copies the header, and checks it and the bounds of every
 * section against the map's size. -EPROTO: it is not a ring that this version knows.
 */
int ring_consumer_check(struct ring_consumer *consumer);
void ring_consumer_deinit(struct ring_consumer *consumer);
/*
 * Next batch in order, NULL when none is published. A batch whose number is not `taken` afterwards
 * came from a broken daemon, as does one that sets `broken`.
 */
const struct ring_slot *ring_take(struct ring_consumer *consumer);
/*
 * Where the caller reads a slot it has taken: with RING_MAP_OWN in memory that it may write, until
 * the slot is taken again.
 */
const char *ring_show(const struct ring_consumer *consumer, const struct ring_slot *slot);
/* With RING_MAP_OWN: lets forks keep what is held, whatever becomes of the slots. Any thread. */
void ring_keep_held(const struct ring_consumer *consumer);
/* Copies a slot's header once: a broken daemon may change the original while it is checked. */
void ring_copy_slot(const struct ring_slot *slot, struct ring_slot *ret_copy);
/* The reason of RING_FAILED, RING_REASON_MAX bytes, terminated; otherwise as the daemon left it. */
void ring_copy_reason(const struct ring_consumer *consumer, char *ret_reason);
/* Sets or clears the waiting word; after setting, look once more before polling. */
void ring_consumer_arm(struct ring_consumer *consumer, int waiting);
/*
 * Gives a batch back. Returns 1 when the daemon wants a doorbell, else 0; -EINVAL when the batch is
 * not held.
 */
int ring_ack(struct ring_consumer *consumer, uint64_t number);
