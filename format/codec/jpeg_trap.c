#include "jpeg_common.h"

#include <errno.h>
#include <jerror.h>
#include <stdarg.h>

/* What the library says when the file may be right but is beyond it. */
static int code_of_message(int message)
{
	switch (message) {
	case JERR_OUT_OF_MEMORY:
		return -ENOMEM;
	case JERR_ARITH_NOTIMPL:
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

_Noreturn static void trap_jump(j_common_ptr cinfo)
{
	struct jpeg_trap *trap = (struct jpeg_trap *)cinfo->err;

	trap->code = code_of_message(cinfo->err->msg_code);
	cinfo->err->format_message(cinfo, trap->text);
	longjmp(trap->jump, 1);
}

static void trap_error_exit(j_common_ptr cinfo)
{
	trap_jump(cinfo);
}

static void trap_emit_message(j_common_ptr cinfo, int level)
{
	/* the revision says nothing of the pixels, and every reader ignores it */
	if (level < 0 && cinfo->err->msg_code != JWRN_JFIF_MAJOR)
		trap_jump(cinfo);
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
