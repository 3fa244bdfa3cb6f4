#include "format/codec/jpeg_common.h"
#include "format/codec/jpeg_input.h"

#include <errno.h>
#include <jerror.h>
#include <stdarg.h>

/* Library messages for files that may be valid but that the library does not support. */
static int code_of_message(int message)
{
	switch (message) {
	case JERR_OUT_OF_MEMORY:
		return -ENOMEM;
#if JPEG_LIB_VERSION < 70 /* later versions have no such message */
	case JERR_ARITH_NOTIMPL:
#endif
	case JERR_BAD_PRECISION:
	case JERR_CCIR601_NOTIMPL:
	case JERR_CONVERSION_NOTIMPL:
	case JERR_FRACT_SAMPLE_NOTIMPL:
	case JERR_IMAGE_TOO_BIG:
	case JERR_NOTIMPL:
	case JERR_NOT_COMPILED:
	case JERR_SOF_UNSUPPORTED:
		return -ENOTSUP;
	default:
		return -EBADMSG;
	}
}

/*
 * Warnings treated specially; SPEC.md, "Complete JPEGs", has the reasons. All others are errors
 * with the library's message.
 */
static const struct {
	int message;
	/*
	 * error message; NULL to ignore the warning, because nothing is missing and all readers
	 * decode the same
	 */
	const char *words;
} warnings[] = {
	{JWRN_ADOBE_XFORM, NULL},
	{JWRN_JFIF_MAJOR, NULL},
	{JWRN_NOT_SEQUENTIAL, NULL},
	{JWRN_HIT_MARKER, "JPEG data end before the image does: the file is truncated or damaged"},
};

_Noreturn static void trap_jump(j_common_ptr cinfo, const char *words)
{
	struct jpeg_trap *trap = (struct jpeg_trap *)cinfo->err;

	trap->code = code_of_message(cinfo->err->msg_code);
	if (words)
		snprintf(trap->text, sizeof(trap->text), "%s", words);
	else
		cinfo->err->format_message(cinfo, trap->text);
	longjmp(trap->jump, 1);
}

static void trap_error_exit(j_common_ptr cinfo)
{
	trap_jump(cinfo, NULL);
}

static void trap_emit_message(j_common_ptr cinfo, int level)
{
	int message = cinfo->err->msg_code;
	const char *words = NULL;

	if (level >= 0)
		return;
	if (message == JWRN_EXTRANEOUS_DATA && jpeg_input_passes_over((j_decompress_ptr)cinfo))
		return;
	for (size_t i = 0; i < sizeof(warnings) / sizeof(warnings[0]); i++) {
		if (warnings[i].message != message)
			continue;
		words = warnings[i].words;
		if (!words)
			return;
	}
	trap_jump(cinfo, words);
}

static void trap_output_message(j_common_ptr cinfo)
{
}

void jpeg_trap_init(struct jpeg_trap *trap)
{
	jpeg_std_error(&trap->manager);
	trap->manager.error_exit = trap_error_exit;
	trap->manager.emit_message = trap_emit_message;
	trap->manager.output_message = trap_output_message;
}

_Noreturn void jpeg_trap_raise(j_common_ptr cinfo, int code, const char *format, ...)
{
	struct jpeg_trap *trap = (struct jpeg_trap *)cinfo->err;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(trap->text, sizeof(trap->text), format, arguments);
	va_end(arguments);
	trap->code = code;
	longjmp(trap->jump, 1);
}
