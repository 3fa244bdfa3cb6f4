/*
 * loaderd._packimg, the Python binding of libpackimg's writer and of packimg's encoder, in the
 * limited API of 3.9. An Encoder turns an image file or pixels into an Encoded sample without the
 * GIL: one for each thread. A Writer takes Encoded samples in order, one thread at a time.
 * loaderd/_writer.py checks values and runs the threads.
 */
#include "format/base/schema.h"
#include "format/error.h"
#include "format/packimg.h"
#include "proto/python/heap_type.h"
#include "tools/packimg/image/sample_encoder.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static PyObject *error_type; /* args: (code, text) */
static PyTypeObject *encoded_type;

struct encoder {
	PyObject_HEAD struct sample_encoder sample_encoder;
	bool ready; /* sample_encoder is initialised */
	bool busy;  /* a thread encodes without the GIL */
};

struct encoded {
	PyObject_HEAD struct buffer bytes; /* data, then side data */
	struct encoded_sample sample;
	struct statistics statistics;
};

struct writer {
	PyObject_HEAD struct packimg_writer *writer; /* NULL once closed */
	struct statistics statistics;
	bool busy; /* a thread writes without the GIL */
};

/* Raises Error for a negative errno and returns NULL. */
static PyObject *raise_error(int code, const struct packimg_error *error)
{
	const char *text = error->text[0] ? error->text : strerror(-code);
	PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
	PyObject *arguments = message ? Py_BuildValue("(iN)", -code, message) : NULL;

	if (arguments) {
		PyErr_SetObject(error_type, arguments);
		Py_DECREF(arguments);
	}
	return NULL;
}

static PyObject *raise_text(int code, const char *text)
{
	struct packimg_error error;

	return raise_error(packimg_fail(&error, code, "%s", text), &error);
}

static PyObject *encoder_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = {"quality", "codec", NULL};
	int quality, codec;

	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "ii", names, &quality, &codec))
		return NULL;
	struct encoder *encoder = object_new(type);
	if (!encoder)
		return NULL;
	const struct sample_encoder_options options = {
		.verbatim = true,
		.quality = quality,
		.zstd_level = 3,
		.other = (enum packimg_codec)codec,
	};
	int r = sample_encoder_init(&encoder->sample_encoder, &options);
	encoder->ready = !r;
	if (!r)
		return (PyObject *)encoder;
	Py_DECREF(encoder);
	return raise_text(r, strerror(-r));
}

static void encoder_dealloc(PyObject *self)
{
	struct encoder *encoder = (struct encoder *)self;

	if (encoder->ready)
		sample_encoder_deinit(&encoder->sample_encoder);
	object_free(self);
}

/* Encodes the file in encoded->bytes, or pixels of height x width x channels. */
static int encode(struct encoder *encoder, struct encoded *encoded,
		  const struct packimg_sample *pixels, bool in_statistics,
		  struct packimg_error *error)
{
	struct statistics *statistics = in_statistics ? &encoded->statistics : NULL;

	if (pixels)
		return sample_encoder_encode_stored(&encoder->sample_encoder, pixels,
						    &encoded->bytes, statistics, &encoded->sample,
						    error);
	return sample_encoder_encode(&encoder->sample_encoder, "", &encoded->bytes, 0, statistics,
				     &encoded->sample, error);
}

/* Encodes `pixels`, or if that is NULL the image file of `size` bytes at `data`. */
static PyObject *encode_new(struct encoder *encoder, const char *data, size_t size,
			    const struct packimg_sample *pixels, bool in_statistics)
{
	struct encoded *encoded = object_new(encoded_type);
	struct packimg_error error = {{0}};

	if (!encoded)
		return NULL;
	encoder->busy = true;
	int r;
	Py_BEGIN_ALLOW_THREADS r = -ENOMEM;
	if (pixels || (!buffer_reserve(&encoded->bytes, size + IMAGE_PADDING) &&
		       !buffer_append(&encoded->bytes, data, size)))
		r = encode(encoder, encoded, pixels, in_statistics, &error);
	Py_END_ALLOW_THREADS encoder->busy = false;
	if (!r)
		return (PyObject *)encoded;
	Py_DECREF(encoded);
	return raise_error(r, &error);
}

static PyObject *encoder_encode(PyObject *self, PyObject *arguments)
{
	struct encoder *encoder = (struct encoder *)self;
	unsigned width, height, channels;
	PyObject *object;
	int in_statistics;

	if (!PyArg_ParseTuple(arguments, "SIIIp", &object, &height, &width, &channels,
			      &in_statistics))
		return NULL;
	char *data;
	Py_ssize_t size;
	if (PyBytes_AsStringAndSize(object, &data, &size))
		return NULL;
	const struct packimg_sample pixels = {
		.data = (const uint8_t *)data,
		.data_size = (uint32_t)size,
		.width = width,
		.height = height,
		.label = PACKIMG_LABEL_NONE,
		.codec = PACKIMG_CODEC_RAW,
		.channels = (uint8_t)channels,
		.orientation = 1,
	};
	if (encoder->busy)
		return raise_text(-EBUSY, "another thread uses this encoder");
	if (!channels)
		return encode_new(encoder, data, (size_t)size, NULL, in_statistics);
	if (width > PACKIMG_SIDE_MAX || height > PACKIMG_SIDE_MAX ||
	    (channels != 1 && channels != 3) || !size || size > UINT32_MAX ||
	    (uint64_t)width * height * channels != (uint64_t)size)
		return raise_text(-EINVAL, "the pixels are not height x width x channels bytes");
	return encode_new(encoder, NULL, 0, &pixels, in_statistics);
}

static void encoded_dealloc(PyObject *self)
{
	buffer_deinit(&((struct encoded *)self)->bytes);
	object_free(self);
}

/*
 * Encodes the pixels of a mask, of a raster, or of an image that is not u8[h,w,3], without loss.
 * Bands of 32 rows: small enough that a crop reads few unneeded rows, large enough to compress
 * nearly as well as the whole image.
 */
static PyObject *encode_raster(struct encoder *encoder, const struct packimg_raster *raster)
{
	static const struct packimg_raster_coding coding = {PACKIMG_RASTER_BEST, .level = 3,
							    .rows_log2 = 5};
	struct encoded *encoded = object_new(encoded_type);
	struct packimg_error error = {{0}};
	const uint8_t *data;
	size_t size;

	if (!encoded)
		return NULL;
	encoder->busy = true;
	int r;
	Py_BEGIN_ALLOW_THREADS r = packimg_encode_raster(encoder->sample_encoder.encoder, raster,
							 &coding, &data, &size, &error);
	if (!r && buffer_append(&encoded->bytes, data, size))
		r = -ENOMEM;
	Py_END_ALLOW_THREADS encoder->busy = false;
	encoded->sample = (struct encoded_sample){
		.data_size = size,
		.width = raster->width,
		.height = raster->height,
		.codec = PACKIMG_CODEC_RASTER,
		.channels = (uint8_t)raster->channels,
		.orientation = 1,
	};
	if (!r)
		return (PyObject *)encoded;
	Py_DECREF(encoded);
	return raise_error(r, &error);
}

static PyObject *encoder_raster(PyObject *self, PyObject *arguments)
{
	struct encoder *encoder = (struct encoder *)self;
	unsigned width, height, channels, element;
	PyObject *object;
	Py_ssize_t size;
	char *data;

	if (!PyArg_ParseTuple(arguments, "SIIII", &object, &height, &width, &channels, &element) ||
	    PyBytes_AsStringAndSize(object, &data, &size))
		return NULL;
	if (encoder->busy)
		return raise_text(-EBUSY, "another thread uses this encoder");
	const size_t element_size = packimg_element_size((enum packimg_element)element);
	if (!element_size || !channels || channels > PACKIMG_RASTER_CHANNELS_MAX || !width ||
	    width > PACKIMG_SIDE_MAX || !height || height > PACKIMG_SIDE_MAX ||
	    (uint64_t)width * height * channels * element_size != (uint64_t)size)
		return raise_text(-EINVAL, "the pixels are not height x width x channels elements");
	const struct packimg_raster raster = {
		.data = (const uint8_t *)data,
		.step_x = (ptrdiff_t)(channels * element_size),
		.step_y = (ptrdiff_t)(width * channels * element_size),
		.width = width,
		.height = height,
		.channels = channels,
		.element = (enum packimg_element)element,
	};
	return encode_raster(encoder, &raster);
}

/* (width, height, orientation); width and height are upright. */
static PyObject *encoded_shape(PyObject *self, void *closure)
{
	const struct encoded_sample *sample = &((struct encoded *)self)->sample;

	return Py_BuildValue("(IIi)", sample->width, sample->height, sample->orientation);
}

/* Parses a schema: [(name, role, element, shape, of, flags, store, number)], and its text. */
static PyObject *module_schema(PyObject *module, PyObject *arguments)
{
	char text[SCHEMA_TEXT_MAX];
	struct schema_error fault;
	struct schema schema;
	const char *given;
	Py_ssize_t size;

	if (!PyArg_ParseTuple(arguments, "s#", &given, &size))
		return NULL;
	int r = schema_parse(given, (size_t)size, &schema, &fault);
	if (r)
		return raise_text(r, fault.text);
	PyObject *list = PyList_New(schema.count);
	for (unsigned i = 0; list && i < schema.count; i++) {
		const struct schema_value *value = &schema.values[i];
		PyObject *shape = PyTuple_New(value->dims);

		for (unsigned d = 0; shape && d < value->dims; d++)
			if (PyTuple_SetItem(shape, d, PyLong_FromUnsignedLong(value->shape[d])))
				Py_CLEAR(shape);
		PyObject *row =
			shape ? Py_BuildValue("(sssNiIii)", value->name,
					      schema_role_name(value->role),
					      value->element == SCHEMA_NO_ELEMENT
						      ? ""
						      : schema_element_name(value->element),
					      shape, value->of == SCHEMA_OF_NONE ? -1 : value->of,
					      value->flags, (int)value->store, value->number)
			      : NULL;
		if (!row || PyList_SetItem(list, i, row))
			Py_CLEAR(list);
	}
	schema_print(&schema, text, sizeof(text));
	return list ? Py_BuildValue("(Ns)", list, text) : NULL;
}

static PyObject *writer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = {"path", "shard_size", NULL};
	struct packimg_writer_options options = {0};
	struct packimg_writer *made = NULL;
	struct packimg_error error = {{0}};
	unsigned long long shard_size;
	const char *path;
	int r;

	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "yK", names, &path, &shard_size))
		return NULL;
	options.shard_size = shard_size;
	Py_BEGIN_ALLOW_THREADS r = packimg_writer_new(path, &options, &made, &error);
	Py_END_ALLOW_THREADS if (r) return raise_error(r, &error);
	struct writer *writer = object_new(type);
	if (writer)
		writer->writer = made;
	else
		packimg_writer_free(made);
	return (PyObject *)writer;
}

static void writer_dealloc(PyObject *self)
{
	packimg_writer_free(((struct writer *)self)->writer);
	object_free(self);
}

/* Returns false with an exception if the writer cannot be used now. */
static bool check_usable(const struct writer *writer)
{
	if (!writer->writer)
		raise_text(-EINVAL, "the writer is closed");
	else if (writer->busy)
		raise_text(-EBUSY, "another thread uses this writer");
	return writer->writer && !writer->busy;
}

static PyObject *writer_schema(PyObject *self, PyObject *arguments)
{
	struct writer *writer = (struct writer *)self;
	struct packimg_error error = {{0}};
	const char *text;

	if (!PyArg_ParseTuple(arguments, "s", &text) || !check_usable(writer))
		return NULL;
	int r = packimg_writer_schema(writer->writer, text, &error);
	if (r)
		return raise_error(r, &error);
	Py_RETURN_NONE;
}

/* Converts an int, a float, or bytes, which stay valid as long as the object. */
static int parse_value(PyObject *object, struct packimg_value *ret_value)
{
	*ret_value = (struct packimg_value){.present = true};
	if (PyLong_Check(object)) {
		ret_value->int64 = PyLong_AsLongLong(object);
		return PyErr_Occurred() ? -1 : 0;
	}
	if (PyFloat_Check(object)) {
		ret_value->float64 = PyFloat_AsDouble(object);
		return 0;
	}
	char *bytes;
	Py_ssize_t size;
	if (PyBytes_AsStringAndSize(object, &bytes, &size))
		return -1;
	ret_value->bytes = bytes;
	ret_value->size = (size_t)size;
	return 0;
}

/* Sets the fields of the sample added last from a list of (number, value). */
static int set_values(struct writer *writer, PyObject *values)
{
	const Py_ssize_t count = PyList_Size(values);

	for (Py_ssize_t i = 0; i < count; i++) {
		struct packimg_error error = {{0}};
		struct packimg_value value;
		unsigned field;
		PyObject *object;

		if (!PyArg_ParseTuple(PyList_GetItem(values, i), "IO", &field, &object) ||
		    parse_value(object, &value))
			return -1;
		int r = packimg_writer_value(writer->writer, field, &value, &error);
		if (r) {
			raise_error(r, &error);
			return -1;
		}
	}
	return count < 0 ? -1 : 0;
}

/* Adds a sample, or, if image is not negative, a further image to the sample added last. */
static int add_item(struct writer *writer, const struct encoded *encoded, int image, int label,
		    const char *source, size_t source_size, struct packimg_error *error)
{
	const struct encoded_sample *sample = &encoded->sample;
	const struct packimg_item item = {
		.data = encoded->bytes.data,
		.data_size = sample->data_size,
		.side = sample->side_size ? encoded->bytes.data + sample->data_size : NULL,
		.side_size = sample->side_size,
		.width = sample->width,
		.height = sample->height,
		.label = label,
		.codec = sample->codec,
		.channels = sample->channels,
		.orientation = sample->orientation,
		.source = source_size ? source : NULL,
		.source_size = source_size,
	};

	return image < 0 ? packimg_writer_add(writer->writer, &item, error)
			 : packimg_writer_image(writer->writer, (uint32_t)image, &item, error);
}

static PyObject *writer_image(PyObject *self, PyObject *arguments)
{
	struct writer *writer = (struct writer *)self;
	struct packimg_error error = {{0}};
	PyObject *object;
	int image, r;

	if (!PyArg_ParseTuple(arguments, "iO", &image, &object) || !check_usable(writer))
		return NULL;
	if (Py_TYPE(object) != encoded_type || image < 0) {
		PyErr_SetString(PyExc_TypeError, "image(number, Encoded)");
		return NULL;
	}
	writer->busy = true;
	Py_BEGIN_ALLOW_THREADS r = add_item(writer, (struct encoded *)object, image,
					    PACKIMG_LABEL_NONE, NULL, 0, &error);
	Py_END_ALLOW_THREADS writer->busy = false;
	if (r)
		return raise_error(r, &error);
	Py_RETURN_NONE;
}

static PyObject *writer_add(PyObject *self, PyObject *arguments)
{
	struct writer *writer = (struct writer *)self;
	struct packimg_error error = {{0}};
	Py_ssize_t source_size;
	const char *source;
	PyObject *object, *values;
	int label, r;

	if (!PyArg_ParseTuple(arguments, "Oiy#O", &object, &label, &source, &source_size,
			      &values) ||
	    !check_usable(writer))
		return NULL;
	if (Py_TYPE(object) != encoded_type || !PyList_Check(values)) {
		PyErr_SetString(PyExc_TypeError, "add(Encoded, label, source, [(field, value)])");
		return NULL;
	}
	const struct encoded *encoded = (struct encoded *)object;
	writer->busy = true;
	Py_BEGIN_ALLOW_THREADS r =
		add_item(writer, encoded, -1, label, source, (size_t)source_size, &error);
	Py_END_ALLOW_THREADS writer->busy = false;
	if (r)
		return raise_error(r, &error);
	statistics_add(&writer->statistics, &encoded->statistics);
	if (set_values(writer, values))
		return NULL;
	Py_RETURN_NONE;
}

/* Sets the class names from a list of texts. */
static int set_classes(struct writer *writer, PyObject *list, struct packimg_error *error)
{
	const Py_ssize_t count = PyList_Size(list);
	const char **names = calloc((size_t)count + 1, sizeof(*names));
	int r = names ? 0 : -ENOMEM;

	for (Py_ssize_t i = 0; !r && i < count; i++)
		r = PyArg_Parse(PyList_GetItem(list, i), "s", &names[i]) ? 0 : -EINVAL;
	if (!r)
		r = packimg_writer_classes(writer->writer, names, (uint32_t)count, error);
	free(names);
	return r;
}

static PyObject *writer_finish(PyObject *self, PyObject *arguments)
{
	struct writer *writer = (struct writer *)self;
	struct packimg_error error = {{0}};
	const char *producer;
	PyObject *classes;

	if (!PyArg_ParseTuple(arguments, "Os", &classes, &producer) || !check_usable(writer))
		return NULL;
	int r = PyList_Check(classes) ? set_classes(writer, classes, &error) : 0;
	if (PyErr_Occurred())
		return NULL;
	if (!r)
		r = packimg_writer_metadata(writer->writer, "producer", producer, &error);
	if (!r)
		r = statistics_write(&writer->statistics, writer->writer, &error);
	if (r)
		return raise_error(r, &error);
	writer->busy = true;
	Py_BEGIN_ALLOW_THREADS r = packimg_writer_finish(writer->writer, &error);
	Py_END_ALLOW_THREADS writer->busy = false;
	if (r)
		return raise_error(r, &error);
	Py_RETURN_NONE;
}

static PyObject *writer_close(PyObject *self, PyObject *unused)
{
	struct writer *writer = (struct writer *)self;

	if (writer->busy)
		return raise_text(-EBUSY, "another thread uses this writer");
	packimg_writer_free(writer->writer);
	writer->writer = NULL;
	Py_RETURN_NONE;
}

static PyMethodDef encoder_methods[] = {
	{"encode", encoder_encode, METH_VARARGS,
	 "encode(data, height, width, channels, in_statistics): Encoded; channels 0: data is an "
	 "image file"},
	{"raster", encoder_raster, METH_VARARGS,
	 "raster(data, height, width, channels, element): Encoded"},
	{NULL},
};
static PyType_Slot encoder_slots[] = {
	{Py_tp_doc, "Encodes samples; for one thread."},
	{Py_tp_new, encoder_new},
	{Py_tp_dealloc, encoder_dealloc},
	{Py_tp_methods, encoder_methods},
	{0},
};
static PyType_Spec encoder_spec = {
	.name = "loaderd._packimg.Encoder",
	.basicsize = sizeof(struct encoder),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = encoder_slots,
};

static PyGetSetDef encoded_attributes[] = {
	{"shape", encoded_shape, NULL, "(width, height, orientation), upright", NULL},
	{NULL},
};
static PyType_Slot encoded_slots[] = {
	{Py_tp_doc, "An encoded sample."},
	{Py_tp_dealloc, encoded_dealloc},
	{Py_tp_getset, encoded_attributes},
	{0},
};
static PyType_Spec encoded_spec = {
	.name = "loaderd._packimg.Encoded",
	.basicsize = sizeof(struct encoded),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = encoded_slots,
};

static PyMethodDef writer_methods[] = {
	{"schema", writer_schema, METH_VARARGS, "schema(text), before all others"},
	{"image", writer_image, METH_VARARGS, "image(number, encoded), of the sample added last"},
	{"add", writer_add, METH_VARARGS, "add(encoded, label, source, [(field, value)])"},
	{"finish", writer_finish, METH_VARARGS, "finish(classes or None, producer)"},
	{"close", writer_close, METH_NOARGS, "Frees the writer; removes unfinished files."},
	{NULL},
};
static PyType_Slot writer_slots[] = {
	{Py_tp_doc, "libpackimg's writer."},
	{Py_tp_new, writer_new},
	{Py_tp_dealloc, writer_dealloc},
	{Py_tp_methods, writer_methods},
	{0},
};
static PyType_Spec writer_spec = {
	.name = "loaderd._packimg.Writer",
	.basicsize = sizeof(struct writer),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = writer_slots,
};

static PyMethodDef module_methods[] = {
	{"schema", module_schema, METH_VARARGS,
	 "schema(text): ([(name, role, element, shape, of, flags, store, number)], text)"},
	{NULL},
};

static struct PyModuleDef module_definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "loaderd._packimg",
	.m_doc = "The writer of datasets; use loaderd.Writer.",
	.m_size = -1,
	.m_methods = module_methods,
};

/* Adds an object, of which the module takes over the reference. */
static int add_object(PyObject *module, const char *name, PyObject *object)
{
	if (!object)
		return -1;
	int r = PyModule_AddObject(module, name, object);
	if (r < 0)
		Py_DECREF(object);
	return r;
}

PyMODINIT_FUNC PyInit__packimg(void);

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__packimg(void)
{
	PyObject *module = PyModule_Create(&module_definition);

	if (!module)
		return NULL;
	error_type = PyErr_NewException("loaderd._packimg.Error", NULL, NULL);
	encoded_type = (PyTypeObject *)PyType_FromSpec(&encoded_spec);
	/* Keep a reference to each in this file, in addition to the module's. */
	Py_XINCREF(error_type);
	Py_XINCREF(encoded_type);
	if (add_object(module, "Error", error_type) < 0 ||
	    add_object(module, "Encoded", (PyObject *)encoded_type) < 0 ||
	    add_object(module, "Encoder", PyType_FromSpec(&encoder_spec)) < 0 ||
	    add_object(module, "Writer", PyType_FromSpec(&writer_spec)) < 0) {
		Py_DECREF(module);
		return NULL;
	}
	return module;
}
