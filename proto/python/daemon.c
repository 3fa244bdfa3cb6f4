#include "proto/python/objects.h"

#include <errno.h>

enum { SETTINGS_MAX = 64 };

struct daemon {
	PyObject_HEAD struct feed_daemon *daemon; /* NULL once stopped */
};

static PyObject *daemon_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = {"binary", "threads", "settings", NULL};
	struct feed_daemon_options options = {.size = sizeof(options)};
	const char *settings[SETTINGS_MAX];
	PyObject *list;
	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "zIO", names, &options.binary,
					 &options.threads, &list))
		return NULL;
	Py_ssize_t count = parse_texts("settings", list, settings, SETTINGS_MAX);
	if (count < 0)
		return NULL;
	options.settings = settings;
	options.setting_count = (uint32_t)count;
	char error[FEED_ERROR_MAX];
	struct feed_daemon *started = NULL;
	int r;
	Py_BEGIN_ALLOW_THREADS r = feed_daemon_start_with(&options, &started, error);
	Py_END_ALLOW_THREADS if (r < 0) return raise_error(r, error);
	struct daemon *daemon = object_new(type);
	if (!daemon) {
		feed_daemon_stop(started);
		return NULL;
	}
	daemon->daemon = started;
	return (PyObject *)daemon;
}

static PyObject *daemon_stop(PyObject *self, PyObject *unused)
{
	struct feed_daemon *stopping = ((struct daemon *)self)->daemon;
	((struct daemon *)self)->daemon = NULL;
	Py_BEGIN_ALLOW_THREADS feed_daemon_stop(stopping);
	Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static void daemon_dealloc(PyObject *self)
{
	feed_daemon_stop(((struct daemon *)self)->daemon);
	object_free(self);
}

static PyObject *daemon_restart(PyObject *self, PyObject *unused)
{
	struct feed_daemon *daemon = ((struct daemon *)self)->daemon;
	char error[FEED_ERROR_MAX] = "The daemon was stopped.";
	int r = -ECONNREFUSED;
	if (daemon) {
		Py_BEGIN_ALLOW_THREADS r = feed_daemon_restart(daemon, error);
		Py_END_ALLOW_THREADS
	}
	if (r < 0)
		return raise_error(r, error);
	Py_RETURN_NONE;
}

static PyObject *daemon_socket(PyObject *self, void *closure)
{
	struct feed_daemon *daemon = ((struct daemon *)self)->daemon;
	if (!daemon)
		Py_RETURN_NONE;
	return PyUnicode_FromString(feed_daemon_socket(daemon));
}

static PyObject *daemon_pid(PyObject *self, void *closure)
{
	struct feed_daemon *daemon = ((struct daemon *)self)->daemon;
	if (!daemon)
		Py_RETURN_NONE;
	return PyLong_FromLong(feed_daemon_pid(daemon));
}

static PyObject *daemon_alive(PyObject *self, void *closure)
{
	struct feed_daemon *daemon = ((struct daemon *)self)->daemon;
	return PyBool_FromLong(daemon && feed_daemon_alive(daemon));
}

static PyObject *daemon_log(PyObject *self, void *closure)
{
	struct feed_daemon *daemon = ((struct daemon *)self)->daemon;
	char text[4096];
	size_t length = !daemon ? 0 : feed_daemon_log(daemon, text, sizeof(text));
	return PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
}

static PyMethodDef daemon_methods[] = {
	{"stop", daemon_stop, METH_NOARGS, "Stops it and waits."},
	{"restart", daemon_restart, METH_NOARGS,
	 "Starts it again, on its socket, if it has ended."},
	{NULL},
};

static PyGetSetDef daemon_attributes[] = {
	{"socket", daemon_socket, NULL, NULL, NULL},
	{"pid", daemon_pid, NULL, NULL, NULL},
	{"alive", daemon_alive, NULL, NULL, NULL},
	{"log", daemon_log, NULL, "The end of its standard error.", NULL},
	{NULL},
};

static PyType_Slot daemon_slots[] = {
	{Py_tp_doc, "A private daemon."},  {Py_tp_new, daemon_new},
	{Py_tp_dealloc, daemon_dealloc},   {Py_tp_methods, daemon_methods},
	{Py_tp_getset, daemon_attributes}, {0},
};

PyType_Spec daemon_spec = {
	.name = "loaderd._feed.Daemon",
	.basicsize = sizeof(struct daemon),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = daemon_slots,
};
