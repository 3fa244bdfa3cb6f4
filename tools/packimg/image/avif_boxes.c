#include "tools/packimg/image/avif_boxes.h"

#include "tools/packimg/common/memory.h"

struct bytes bytes_of(const uint8_t *data, size_t size)
{
	uint8_t *begin = (uint8_t *)(uintptr_t)data;

	return (struct bytes){begin, begin + size};
}

uint64_t bytes_take(struct bytes *bytes, uint32_t count)
{
	uint64_t value = 0;

	for (; count > 0 && bytes->at < bytes->end; count--)
		value = value << 8 | *bytes->at++;
	return count ? 0 : value;
}

void bytes_skip(struct bytes *bytes, uint64_t count)
{
	uint64_t left = (uint64_t)(bytes->end - bytes->at);

	bytes->at += count < left ? count : left;
}

bool bytes_take_box(struct bytes *bytes, uint32_t *ret_type, struct bytes *ret_content)
{
	struct bytes content = *bytes;
	uint64_t left = (uint64_t)(bytes->end - bytes->at), size = bytes_take(&content, 4);

	*ret_type = (uint32_t)bytes_take(&content, 4);
	if (size == 1)
		size = bytes_take(&content, 8);
	else if (size == 0)
		size = left;
	if (size > left || size < (uint64_t)(content.at - bytes->at) || left < 8)
		return false;
	content.end = bytes->at + size;
	bytes->at += size;
	*ret_content = content;
	return true;
}

struct bytes bytes_find_box(struct bytes bytes, uint32_t wanted)
{
	struct bytes content;
	uint32_t type;

	while (bytes_take_box(&bytes, &type, &content))
		if (type == wanted)
			return content;
	return (struct bytes){bytes.at, bytes.at};
}

static void put(uint8_t *to, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/*
 * Returns true if the last box has size 0, which means "to the end"; with `write`, stores the
 * actual size.
 */
static bool size_last(struct bytes file, bool write)
{
	struct bytes content, head;
	uint32_t type;

	for (head = file; bytes_take_box(&file, &type, &content); head = file) {
		uint8_t *box = head.at;
		uint64_t size = (uint64_t)(file.at - box);

		if (bytes_take(&head, 4) || size > UINT32_MAX)
			continue;
		if (write)
			put(box, (uint32_t)size);
		return true;
	}
	return false;
}

/* Returns true if there are audio tracks (8.4.3); with `write`, turns them into free space. */
static bool remove_audio(struct bytes file, bool write)
{
	/*
	 * bytes in hdlr before the handler type (version, flags, pre_defined); offset of the type
	 * in a box
	 */
	enum { BEFORE_HANDLER = 8, NAME = 4 };
	struct bytes moov = bytes_find_box(file, BOX_TYPE('m', 'o', 'o', 'v')), trak;
	bool found = false;
	uint32_t type;

	for (uint8_t *box = moov.at; bytes_take_box(&moov, &type, &trak); box = moov.at) {
		struct bytes mdia = bytes_find_box(trak, BOX_TYPE('m', 'd', 'i', 'a'));
		struct bytes hdlr = bytes_find_box(mdia, BOX_TYPE('h', 'd', 'l', 'r'));

		bytes_skip(&hdlr, BEFORE_HANDLER);
		if (type != BOX_TYPE('t', 'r', 'a', 'k') ||
		    bytes_take(&hdlr, 4) != BOX_TYPE('s', 'o', 'u', 'n'))
			continue;
		if (write)
			put(box + NAME, BOX_TYPE('f', 'r', 'e', 'e'));
		found = true;
	}
	return found;
}

int avif_make_plain(const uint8_t *data, size_t size, struct buffer *file)
{
	struct bytes bytes = bytes_of(data, size);
	int r = 0;

	if (!size_last(bytes, false) && !remove_audio(bytes, false))
		return 0;
	if (!file->size)
		r = buffer_append(file, data, size);
	if (r)
		return r;
	bytes = bytes_of(file->data, file->size);
	size_last(bytes, true);
	remove_audio(bytes, true);
	return 0;
}
