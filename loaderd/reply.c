#include "loaderd/reply.h"

Loaderd__Error reply_error(int code, const char *text)
{
	Loaderd__Error error = LOADERD__ERROR__INIT;
	error.code = code;
	error.text = (char *)text;
	error.position = -1;
	return error;
}
