#include "tests/fuzz/support/jpeg_case.h"
#include "format/codec/jpeg/jpeg_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

enum {
	SETS = 10, /* number of table sets, more than the decoder caches */
	FILE_MAX = 1 << 17,
	SCAN_MAX = FILE_MAX - 4096,
};

static uint8_t buffer[FILE_MAX];

/* ---- tables ---- */

struct code {
	uint8_t counts[16];
	uint8_t symbols[256];
	uint32_t symbol_count;
	uint16_t bits[256]; /* code of symbols[i] */
	uint8_t lengths[256];
	uint16_t places[256]; /* index in symbols of each symbol, symbol_count if absent */
};

static struct code codes[2][SETS]; /* [DC or AC][set] */
static uint64_t random_state = 1;

static uint32_t draw(uint32_t bound)
{
	random_state = random_state * 6364136223846793005 + 1442695040888963407;
	return (uint32_t)((random_state >> 32) * bound >> 32);
}

static void code_number(struct code *code)
{
	uint32_t bits = 0, k = 0;

	for (unsigned length = 1; length <= 16; length++, bits <<= 1)
		for (unsigned i = 0; i < code->counts[length - 1]; i++, k++) {
			code->bits[k] = (uint16_t)bits++;
			code->lengths[k] = (uint8_t)length;
		}
	code->symbol_count = k;
	for (unsigned i = 0; i < 256; i++)
		code->places[i] = (uint16_t)k;
	while (k-- > 0)
		code->places[code->symbols[k]] = (uint16_t)k;
}

/* The tables of T.81, annex K, read from libjpeg. */
static void code_standard(void)
{
	struct jpeg_compress_struct c;
	struct jpeg_error_mgr errors;

	c.err = jpeg_std_error(&errors);
	jpeg_create_compress(&c);
	c.in_color_space = JCS_RGB;
	c.input_components = 3;
	jpeg_set_defaults(&c);
	for (int slot = 0; slot < 2; slot++)
		for (int is_ac = 0; is_ac < 2; is_ac++) {
			const JHUFF_TBL *table =
				is_ac ? c.ac_huff_tbl_ptrs[slot] : c.dc_huff_tbl_ptrs[slot];

			memcpy(codes[is_ac][slot].counts, table->bits + 1, 16);
			memcpy(codes[is_ac][slot].symbols, table->huffval, 256);
		}
	jpeg_destroy_compress(&c);
}

/*
 * Makes a random prefix code that leaves some bit patterns unused. Its symbols are all symbols in
 * random order, or only those that occur in photographs. It always contains symbol 0 (end of block,
 * or a difference of 0).
 */
static void code_random(struct code *code, int is_ac, bool any)
{
	uint32_t symbols = 0, room = 1, k = 0, spread = 1 + draw(12);

	for (uint32_t s = 0; s < (is_ac ? 256 : any ? 16 : 12); s++)
		if (any || !is_ac || (s & 15 && (s & 15) < 11) || s == 0 || s == 0xf0)
			code->symbols[symbols++] = (uint8_t)s;
	for (uint32_t i = symbols - 1; i > 0; i--) {
		uint32_t j = draw(i + 1);
		uint8_t symbol = code->symbols[i];

		code->symbols[i] = code->symbols[j];
		code->symbols[j] = symbol;
	}
	for (unsigned length = 1; length <= 16; length++) {
		uint32_t count;

		room *= 2;
		count = length == 16 ? room - 1
				     : draw(1 + room * (1 + draw(spread)) / (spread + 4));
		count = count < room ? count : room - 1;
		count = count < symbols - k ? count : symbols - k;
		count = count < 255 ? count : 255;
		code->counts[length - 1] = (uint8_t)count;
		room -= count;
		k += count;
	}
	for (uint32_t i = 0; i < symbols; i++) /* symbol 0 must be among the first k symbols */
		if (code->symbols[i] == 0) {
			uint32_t j = draw(k);

			code->symbols[i] = code->symbols[j];
			code->symbols[j] = 0;
			break;
		}
}

static void make_codes(void)
{
	code_standard();
	for (int is_ac = 0; is_ac < 2; is_ac++)
		for (unsigned i = 0; i < SETS; i++) {
			if (i > 1)
				code_random(&codes[is_ac][i], is_ac, i > 5);
			code_number(&codes[is_ac][i]);
		}
}

/* ---- input and output ---- */

struct input {
	const uint8_t *next, *end;
};

static uint32_t take(struct input *input)
{
	return input->next < input->end ? *input->next++ : 0;
}

struct output {
	uint8_t *next;
	uint64_t bits; /* the last bit is the least significant one */
	uint32_t bit_count;
};

static void put(struct output *output, uint32_t byte)
{
	*output->next++ = (uint8_t)byte;
}

static void put_marker(struct output *output, uint32_t marker, uint32_t size)
{
	put(output, 0xff);
	put(output, marker);
	put(output, (size + 2) >> 8);
	put(output, size + 2);
}

static void put_bits(struct output *output, uint32_t bits, uint32_t count)
{
	output->bits = output->bits << count | (bits & ((UINT64_C(1) << count) - 1));
	output->bit_count += count;
	while (output->bit_count >= 8) {
		uint32_t byte = output->bits >> (output->bit_count - 8) & 255;

		put(output, byte);
		if (byte == 255)
			put(output, 0);
		output->bit_count -= 8;
	}
}

static void put_padding(struct output *output)
{
	put_bits(output, 127, -output->bit_count & 7);
}

/* ---- headers ---- */

enum {
	WILD = 1,     /* coefficients of any size */
	OVERRUN = 2,  /* symbols may run beyond the end of a block */
	RAW = 4,      /* the scan is raw bits, with FF stuffed */
	VERBATIM = 8, /* with RAW: without stuffing, so that markers occur */
};

struct choice {
	uint32_t flags, damages, luma_set, chroma_set, quant;
};

static const uint8_t samplings[][2] = {{1, 1}, {1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {4, 2}};

static const uint8_t flags_of[8] = {0, 0, 0, 0, WILD, WILD | OVERRUN, RAW, RAW | VERBATIM};

static uint32_t mcus_wide(const struct jpeg_case *this)
{
	uint32_t size = this->components == 1 ? 8 : 8 * this->h;

	return (this->width + size - 1) / size;
}

static struct choice choose(struct jpeg_case *this, struct input *input)
{
	struct choice choice = {0};
	uint32_t kind = take(input), sampling = kind % 7, flags = take(input), restart, sets;

	this->components = sampling == 0 ? 1 : 3;
	this->h = samplings[sampling][0];
	this->v = samplings[sampling][1];
	choice.quant = kind / 7 % 4;
	this->width = 1 + take(input) % JPEG_CASE_SIDE_MAX;
	this->height = 1 + take(input) % JPEG_CASE_SIDE_MAX;
	this->mcus_wide = mcus_wide(this);
	restart = take(input);
	/* no intervals, intervals of any length, or of whole rows */
	this->restart = restart < 128   ? 0
			: restart < 192 ? 1 + restart % 16
					: (1 + restart % 3) * this->mcus_wide;
	sets = take(input);
	choice.luma_set = sets % 16 % SETS;
	choice.chroma_set = sets / 16 % SETS;
	choice.flags = flags_of[flags % 8];
	choice.damages = flags / 8 < 24 ? 0 : flags / 8 % 4;
	this->denominator = 1u << kind / 28 % 4;
	this->scaled_width = (this->width + this->denominator - 1) / this->denominator;
	this->scaled_height = (this->height + this->denominator - 1) / this->denominator;
	this->x = take(input) % this->scaled_width;
	this->y = take(input) % this->scaled_height;
	this->region_width = 1 + take(input) % (this->scaled_width - this->x);
	this->region_height = 1 + take(input) % (this->scaled_height - this->y);
	return choice;
}

/*
 * Returns quantisation value k in zigzag order. Depending on kind: 1, the value of quality 90, any
 * 8-bit value, or a table in which some values exceed 8 bits.
 */
static uint32_t quant_value(uint32_t kind, uint32_t k)
{
	switch (kind) {
	case 0:
		return 1;
	case 1:
		return 3 + k / 4;
	case 2:
		return 1 + k * 97 % 255;
	default:
		return k % 5 == 4 ? 256 + k * 977 : 1 + k;
	}
}

static void put_quant(struct output *output, uint32_t kind, uint32_t slot)
{
	uint32_t wide = kind == 3;

	put_marker(output, 0xdb, 1 + (wide ? 128 : 64));
	put(output, wide << 4 | slot);
	for (uint32_t k = 0; k < 64; k++) {
		uint32_t value = quant_value(kind, k);

		if (wide)
			put(output, value >> 8);
		put(output, value);
	}
}

static void put_code(struct output *output, const struct code *code, uint32_t place)
{
	put_marker(output, 0xc4, 17 + code->symbol_count);
	put(output, place);
	for (unsigned i = 0; i < 16; i++)
		put(output, code->counts[i]);
	for (uint32_t i = 0; i < code->symbol_count; i++)
		put(output, code->symbols[i]);
}

static void put_headers(struct output *output, const struct jpeg_case *this,
			const struct choice *choice)
{
	put(output, 0xff);
	put(output, 0xd8);
	put_quant(output, choice->quant, 0);
	put_quant(output, choice->quant & 1, 1);
	put_marker(output, 0xc1, 6 + 3 * this->components);
	put(output, 8);
	put(output, 0);
	put(output, this->height);
	put(output, 0);
	put(output, this->width);
	put(output, this->components);
	for (uint32_t i = 0; i < this->components; i++) {
		put(output, i + 1);
		put(output, i ? 0x11 : this->h << 4 | this->v);
		put(output, i > 0);
	}
	put_code(output, &codes[0][choice->luma_set], 0x00);
	put_code(output, &codes[1][choice->luma_set], 0x10);
	put_code(output, &codes[0][choice->chroma_set], 0x01);
	put_code(output, &codes[1][choice->chroma_set], 0x11);
	if (this->restart) {
		put_marker(output, 0xdd, 2);
		put(output, 0);
		put(output, this->restart);
	}
	put_marker(output, 0xda, 4 + 2 * this->components);
	put(output, this->components);
	for (uint32_t i = 0; i < this->components; i++) {
		put(output, i + 1);
		put(output, i ? 0x11 : 0);
	}
	put(output, 0);
	put(output, 63);
	put(output, 0);
}

/* ---- the scan ---- */

/*
 * Limit on the sum of absolute dequantised values in a block. Below it nothing overflows 16 bits
 * between the passes of the inverse DCT. Photographs stay below it.
 */
enum { SUM_MAX = 2900 };

struct component {
	const struct code *dc, *ac;
	uint32_t quant;
	int32_t predictor;
};

static void put_symbol(struct output *output, const struct code *code, uint32_t k, uint32_t value,
		       uint32_t category)
{
	put_bits(output, code->bits[k], code->lengths[k]);
	put_bits(output, value, category);
}

static uint32_t take_value(struct input *input, uint32_t category)
{
	uint32_t value = category > 0 ? take(input) * 0x101 : 0;

	return category > 8 ? value ^ take(input) << 8 : value;
}

/* Codes a DC difference. The input gives the new level, in dequantised steps of 8. */
static uint32_t put_dc(struct output *output, struct component *this, struct input *input)
{
	int32_t quant = (int32_t)quant_value(this->quant, 0);
	uint32_t byte = take(input), category = 0, k;
	int32_t target = (int8_t)byte * 8 / quant, difference = target - this->predictor;

	while (abs(difference) >> category)
		category++;
	k = this->dc->places[category];
	if (byte == 0 || k == this->dc->symbol_count) {
		k = this->dc->places[0];
		category = 0;
		difference = 0;
	}
	this->predictor += difference;
	put_symbol(output, this->dc, k,
		   (uint32_t)(difference < 0 ? difference + (1 << category) - 1 : difference),
		   category);
	return (uint32_t)abs(this->predictor * quant);
}

/*
 * Codes the AC coefficients. Takes one byte of input per symbol; 0, which also follows the end of
 * the input, ends the block.
 */
static void put_block(struct output *output, struct component *this, uint32_t flags,
		      struct input *input)
{
	uint32_t sum = 0;

	if (flags & WILD) {
		uint32_t byte = take(input);
		uint32_t k = byte ? byte % this->dc->symbol_count : this->dc->places[0];
		uint32_t category = this->dc->symbols[k];

		put_symbol(output, this->dc, k, take_value(input, category), category);
	} else {
		sum = put_dc(output, this, input);
	}
	for (uint32_t at = 1; at < 64;) {
		uint32_t byte = take(input);
		uint32_t k = byte ? byte % this->ac->symbol_count : this->ac->places[0];
		uint32_t symbol = this->ac->symbols[k], category = symbol & 15;
		uint32_t place = at + (symbol >> 4), most;

		most = ((1u << category) - 1) * quant_value(this->quant, place & 63);
		if ((place > 63 && !(flags & OVERRUN)) ||
		    (sum + most > SUM_MAX && !(flags & WILD))) {
			k = this->ac->places[0];
			symbol = category = most = 0;
		}
		sum += most;
		put_symbol(output, this->ac, k, take_value(input, category), category);
		if (category == 0 && symbol != 0xf0)
			break;
		at = place + 1;
	}
}

static void put_scan(struct output *output, const struct jpeg_case *this,
		     const struct choice *choice, struct input *input)
{
	uint32_t h = this->components == 1 ? 1 : this->h, v = this->components == 1 ? 1 : this->v;
	uint32_t mcus = this->mcus_wide * ((this->height + 8 * v - 1) / (8 * v));
	struct component components[3];

	for (uint32_t i = 0; i < 3; i++) {
		uint32_t set = i ? choice->chroma_set : choice->luma_set;

		components[i] = (struct component){&codes[0][set], &codes[1][set],
						   i ? choice->quant & 1 : choice->quant, 0};
	}
	for (uint32_t mcu = 0; mcu < mcus; mcu++) {
		if (this->restart && mcu > 0 && mcu % this->restart == 0) {
			put_padding(output);
			put(output, 0xff);
			put(output, 0xd0 + (mcu / this->restart - 1) % 8);
			for (uint32_t i = 0; i < 3; i++)
				components[i].predictor = 0;
		}
		for (uint32_t i = 0; i < this->components; i++)
			for (uint32_t b = i ? 1 : h * v; b > 0; b--)
				put_block(output, &components[i], choice->flags, input);
	}
	put_padding(output);
}

static void put_raw(struct output *output, bool verbatim, struct input *input)
{
	for (uint32_t i = 0; input->next < input->end && i < SCAN_MAX / 2; i++) {
		uint32_t byte = take(input);

		put(output, byte);
		if (byte == 255 && !verbatim)
			put(output, 0);
	}
}

void jpeg_case_build(struct jpeg_case *ret_case, const uint8_t *data, size_t size)
{
	struct jpeg_case this = {0};
	struct input input = {data, data + size};
	struct output output = {.next = buffer};
	uint8_t damages[3][3];
	struct choice choice;

	if (!codes[0][0].symbol_count)
		make_codes();
	choice = choose(&this, &input);
	for (uint32_t i = 0; i < 3 * choice.damages; i++)
		damages[i / 3][i % 3] = (uint8_t)take(&input);
	put_headers(&output, &this, &choice);
	if (choice.flags & RAW)
		put_raw(&output, choice.flags & VERBATIM, &input);
	else
		put_scan(&output, &this, &choice, &input);
	put(&output, 0xff);
	put(&output, 0xd9);
	this.size = (size_t)(output.next - buffer);
	for (uint32_t i = 0; i < choice.damages; i++)
		buffer[(damages[i][0] << 8 | damages[i][1]) % this.size] ^= damages[i][2];
	this.valid = !(choice.flags & ~WILD) && choice.damages == 0;
	this.typical = choice.flags == 0 && choice.damages == 0;
	this.file = buffer + sizeof(buffer) - this.size;
	memmove(this.file, buffer, this.size);
	*ret_case = this;
}

size_t jpeg_case_columns(const struct jpeg_case *this, uint8_t *output)
{
	static const struct jpeg_index_entry
		entries[JPEG_CASE_SIDE_MAX / 8 * JPEG_INDEX_ENTRIES_MAX];
	struct jpeg_index_plan plan = {0};
	struct jpeg_frame frame;

	if (jpeg_frame_parse(this->file, this->size, &frame) < 0 || frame.width != this->width ||
	    frame.height != this->height)
		return 0;
	plan.row_count = frame.mcus_high;
	plan.component_count = frame.component_count;
	plan.entry_count =
		frame.mcus_wide < JPEG_INDEX_ENTRIES_MAX ? frame.mcus_wide : JPEG_INDEX_ENTRIES_MAX;
	for (uint32_t i = 0; i < plan.entry_count; i++)
		plan.columns[i] = i;
	return jpeg_index_pack(&plan, entries, output);
}
