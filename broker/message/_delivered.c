/* Encodes usual messages for delivery to a client: what `delivered.py` describes.
 *
 * Knows what a row begins with and the stored form (`stored_form.py`). Does not know the annotations: it fills the gaps
 * of a start that Python made. A run with an unusual message is left to Python: the answer is None then.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { ROW_VERSION = 1, VERSION_MASK = 0x0F }; /* of the first byte */
enum { ROW_HOPS = 1, ROW_PATH_BYTES = 2, ROW_DELIVERY_COUNT = 4, ROW_ENQUEUED_AT = 8, ROW_NUMBER = 24, ROW_HEAD_BYTES = 32 };
enum { FORM_VERSION = 1, FORM_HEADER_BYTES = 1, FORM_COUNT = 2, FORM_SIZE = 6, FORM_HEAD_BYTES = 10 };
enum { COUNT_AT = 1, TOKEN_BYTES = 16 }; /* of the start: the delivery count, behind its constructor */

typedef struct { /* what the broker writes into each message, and where its gaps are */
    const uint8_t *bytes;
    Py_ssize_t size, token_at, map_at, number_at, enqueued_at, origin_at;
} start_t;

static uint32_t u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put(uint8_t *p, uint64_t value, int size)
{
    for (int i = size - 1; i >= 0; i--, value >>= 8)
        p[i] = (uint8_t)value;
}

/* An AMQP uuid from a lock token, which is in .NET's order. */
static void put_uuid(uint8_t *p, const uint8_t *token)
{
    static const uint8_t FROM[] = {3, 2, 1, 0, 5, 4, 7, 6};
    for (int i = 0; i < 8; i++)
        p[i] = token[FROM[i]];
    memcpy(p + 8, token + 8, 8);
}

static bool is_gap(const start_t *start, Py_ssize_t at, Py_ssize_t size)
{
    return at >= 0 && at <= start->size - size;
}

static bool has_gaps(const start_t *start, bool with_tokens)
{
    return is_gap(start, COUNT_AT, 4) && (!with_tokens || is_gap(start, start->token_at, TOKEN_BYTES))
           && is_gap(start, start->map_at, 8) && is_gap(start, start->number_at, 8)
           && is_gap(start, start->enqueued_at, 8) && (start->origin_at == -1 || is_gap(start, start->origin_at, 8));
}

/* One encoded message, or NULL; without an exception if the row is unusual. */
static PyObject *encode_row(const start_t *start, const uint8_t *row, Py_ssize_t size, int64_t number,
                            const uint8_t *token)
{
    if (size < ROW_HEAD_BYTES + FORM_HEAD_BYTES || row[ROW_PATH_BYTES] || row[ROW_PATH_BYTES + 1]
        || (row[0] & VERSION_MASK) != ROW_VERSION)
        return NULL;
    bool is_numbered = !(row[ROW_NUMBER] & 0x80); /* not negative */
    bool has_origin = (row[ROW_HOPS] || start->origin_at >= 0) && is_numbered;
    const uint8_t *form = row + ROW_HEAD_BYTES, *header = form + FORM_HEAD_BYTES, *end = row + size;
    Py_ssize_t header_bytes = form[FORM_HEADER_BYTES];
    uint32_t entries_bytes = u32(form + FORM_SIZE), entries_count = u32(form + FORM_COUNT);
    uint64_t map_bytes = (uint64_t)u32(start->bytes + start->map_at) + entries_bytes;
    uint64_t map_count = (uint64_t)u32(start->bytes + start->map_at + 4) + entries_count;
    if (form[0] != FORM_VERSION || has_origin != (start->origin_at >= 0) || header_bytes > end - header
        || map_bytes > UINT32_MAX || map_count > UINT32_MAX)
        return NULL;
    Py_ssize_t rest_bytes = end - header - header_bytes;
    PyObject *payload = PyBytes_FromStringAndSize(NULL, header_bytes + start->size + rest_bytes);
    if (!payload)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(payload);
    memcpy(out, header, (size_t)header_bytes);
    out += header_bytes;
    memcpy(out, start->bytes, (size_t)start->size);
    memcpy(out + COUNT_AT, row + ROW_DELIVERY_COUNT, 4);
    if (token)
        put_uuid(out + start->token_at, token);
    put(out + start->map_at, map_bytes, 4);
    put(out + start->map_at + 4, map_count, 4);
    put(out + start->number_at, (uint64_t)number, 8);
    memcpy(out + start->enqueued_at, row + ROW_ENQUEUED_AT, 8);
    if (has_origin)
        memcpy(out + start->origin_at, row + ROW_NUMBER, 8);
    memcpy(out + start->size, header + header_bytes, (size_t)rest_bytes);
    return payload;
}

/* The encoded message of a tuple (sequence number, row); as `encode_row`. */
static PyObject *encode_item(const start_t *start, PyObject *item, PyObject *token)
{
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2 || !PyBytes_Check(PyTuple_GET_ITEM(item, 1))
        || (token && (!PyBytes_Check(token) || PyBytes_GET_SIZE(token) != TOKEN_BYTES)))
        return PyErr_Format(PyExc_TypeError, "rows are (int, bytes), lock tokens have %d bytes", TOKEN_BYTES);
    PyObject *row = PyTuple_GET_ITEM(item, 1);
    int64_t number = PyLong_AsLongLong(PyTuple_GET_ITEM(item, 0));
    if (number == -1 && PyErr_Occurred())
        return NULL;
    return encode_row(start, (const uint8_t *)PyBytes_AS_STRING(row), PyBytes_GET_SIZE(row), number,
                      token ? (const uint8_t *)PyBytes_AS_STRING(token) : NULL);
}

static PyObject *encode_all(const start_t *start, PyObject *rows, PyObject *tokens)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(rows);
    if (tokens && PySequence_Fast_GET_SIZE(tokens) != count)
        return PyErr_Format(PyExc_ValueError, "%zd lock tokens for %zd rows", PySequence_Fast_GET_SIZE(tokens), count);
    PyObject *payloads = PyList_New(count);
    for (Py_ssize_t i = 0; payloads && i < count; i++) {
        PyObject *token = tokens ? PySequence_Fast_GET_ITEM(tokens, i) : NULL;
        PyObject *payload = encode_item(start, PySequence_Fast_GET_ITEM(rows, i), token);
        if (!payload) {
            Py_DECREF(payloads);
            return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
        }
        PyList_SET_ITEM(payloads, i, payload);
    }
    return payloads;
}

static PyObject *encode_rows(PyObject *self, PyObject *args)
{
    PyObject *rows, *tokens, *bytes;
    start_t start;
    if (!PyArg_ParseTuple(args, "OOSnnnnn", &rows, &tokens, &bytes, &start.token_at, &start.map_at, &start.number_at,
                          &start.enqueued_at, &start.origin_at))
        return NULL;
    start.bytes = (const uint8_t *)PyBytes_AS_STRING(bytes);
    start.size = PyBytes_GET_SIZE(bytes);
    if (!has_gaps(&start, tokens != Py_None))
        return PyErr_Format(PyExc_ValueError, "a gap is not in the start");
    PyObject *fast_rows = PySequence_Fast(rows, "rows are a sequence");
    PyObject *fast_tokens = tokens == Py_None ? NULL : PySequence_Fast(tokens, "lock tokens are a sequence");
    PyObject *payloads = NULL;
    if (fast_rows && (fast_tokens || tokens == Py_None))
        payloads = encode_all(&start, fast_rows, fast_tokens);
    Py_XDECREF(fast_rows);
    Py_XDECREF(fast_tokens);
    return payloads;
}

static PyMethodDef METHODS[] = {
    {"encode_rows", encode_rows, METH_VARARGS, "See delivered.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_delivered", "Encodes messages.", -1, METHODS,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__delivered(void)
{
    return PyModule_Create(&MODULE);
}
