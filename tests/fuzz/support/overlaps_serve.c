#include "loaderd/io/dataset.h"
#include "loaderd/io/io.h"
#include "tests/fuzz/support/dataset_read.h"
#include "tests/fuzz/support/overlaps.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	MEMORY_MAX = 64 << 20,
	PIXELS_MAX = 1 << 16,
	QUEUE_DEPTH = 4,
	/* a quarter of the buffer holds the largest image with its side data */
	BUFFER_BYTES = 4 * (2 * OVERLAPS_BYTES_MAX + 2 * 4096),
};

static struct packimg_decoder *decoder;
static bool uring;

static void set_up(void)
{
	if (decoder)
		return;
	if (packimg_decoder_new(&decoder) < 0)
		abort();
	packimg_decoder_limit(decoder, MEMORY_MAX);
	/* reused, because creating an io_uring instance takes longer than everything else here */
	uring = io_reserve(1, QUEUE_DEPTH) == 0 && io_can_uring();
}

static int put_file(const struct overlaps_file *file)
{
	int fd = memfd_create("overlaps", MFD_CLOEXEC);
	if (fd < 0 || write(fd, file->bytes, file->size) != (ssize_t)file->size)
		abort();
	return fd;
}

static void check(int fd, struct overlaps_verdict *verdict)
{
	struct packimg_error error = {{0}};
	struct packimg *image;

	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	verdict->opened = packimg_open_fds("overlaps", &copy, 1, &image, &error);
	verdict->checked = verdict->opened;
	if (verdict->opened == 0) {
		verdict->checked = packimg_check(image, &error);
		dataset_read(decoder, image);
		packimg_close(image);
	} else {
		close(copy);
	}
	memcpy(verdict->text, error.text, sizeof(verdict->text));
	verdict->text[sizeof(verdict->text) - 1] = '\0';
}

/* Same steps as make_guarded() in loaderd/batch/sample.c. */
static void make_sample(struct dataset *dataset, uint64_t index, const struct packimg_sample *read)
{
	struct packimg_sample sample;
	struct packimg_pixels pixels;
	struct packimg_error error;

	if (dataset_sample(dataset, index, !read, &sample, &error) < 0)
		return;
	if (read) {
		sample = *read;
		if (dataset_verify(dataset, &sample, &error) < 0)
			return;
	}
	const struct packimg_region region = {0, 0, sample.width, sample.height};
	if ((uint64_t)sample.width * sample.height <= PIXELS_MAX)
		(void)packimg_decode(decoder, &sample, &region, 0, 0, &pixels, &error);
}

/* Same steps as put_picture() in loaderd/batch/values.c. */
static void make_images(struct io *io, struct dataset *dataset, uint64_t unit, uint64_t index,
			struct io_buffer *buffer)
{
	struct packimg_sample image;
	struct packimg_error error;

	for (uint32_t i = 0; i < packimg_image_count(dataset->image); i++)
		if (io_get_image(io, unit, index, i, buffer, &image, &error) == 0)
			(void)dataset_verify_image(dataset, &image, i, &error);
}

static unsigned feed(struct dataset *dataset, enum io_mode mode)
{
	struct io_options options = {
		.dataset = dataset,
		.walk = {.order = {.samples = dataset->count,
				   .batch_size = 4,
				   .world = 1,
				   .last_short = true},
			 .epoch_end = 1},
		.mode = mode,
		.bytes = BUFFER_BYTES,
		.queue_depth = QUEUE_DEPTH,
		.image_count = packimg_image_count(dataset->image),
	};
	unsigned read = 0;
	uint64_t index;
	struct io_buffer buffer = {0}, image_buffer = {0};
	struct io *io;
	int place;

	for (uint8_t i = 0; i < options.image_count && i < SCHEMA_IMAGES_MAX; i++)
		options.images[i] = i;
	if (order_init(&options.walk.order) < 0 || io_new(&options, &io) < 0)
		return 0;
	struct order_walk walk = options.walk;
	for (uint64_t unit = 0; (place = order_walk_at(&walk, unit, &index)) >= 0; unit++) {
		struct packimg_sample sample;
		struct packimg_error error;

		io_begun(io, unit + 1);
		if (place == 0)
			continue;
		int r = io_get(io, unit, index, &buffer, &sample, &error);
		if (r >= 0) {
			make_sample(dataset, index, r == IO_READ ? &sample : NULL);
			make_images(io, dataset, unit, index, &image_buffer);
		}
		read += r == IO_READ;
		io_done(io, unit);
	}
	io_free(io);
	io_buffer_deinit(&buffer);
	io_buffer_deinit(&image_buffer);
	return read;
}

void overlaps_serve(const struct overlaps_file *file, struct overlaps_verdict *ret_verdict)
{
	struct overlaps_verdict verdict = {0};
	struct packimg_error error;
	struct dataset *dataset;

	set_up();
	int fd = put_file(file);
	check(fd, &verdict);
	/* first copied like files on a tmpfs, then mapped */
	for (unsigned mapped = 0; mapped < 2; mapped++) {
		int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (dataset_open(&(struct dataset_files){"overlaps", &copy, 1}, 1, mapped, &dataset,
				 &error) < 0) {
			close(copy);
			continue;
		}
		/* verify checksums at every use, not only at the first */
		atomic_store(&dataset->suspect, true);
		feed(dataset, IO_MMAP);
		if (uring)
			verdict.read = feed(dataset, IO_URING);
		dataset_free(dataset);
	}
	close(fd);
	*ret_verdict = verdict;
}
