/* Walks over encoded values and sections without looking into them: what `skip.py`, `sections.py` and `decode.py`
 * describe.
 *
 * A peer decides how many values its message has: a million null values, 200 000 empty sections. Here each takes some
 * nanoseconds, in Python half a microsecond, and the event loop stood for a second. Knows constructors and how
 * descriptors are written. Raises what the functions in Python raise.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { CODE_FIRST = 0x70, DATA = 0x75, VALUE = 0x77, CODE_LAST = 0x78, CODES = CODE_LAST - CODE_FIRST + 1 };

static PyObject *decode_error; /* errors.DecodeError */

static const char *const SYMBOLS[CODES] = {
    "amqp:header:list", "amqp:delivery-annotations:map", "amqp:message-annotations:map", "amqp:properties:list",
    "amqp:application-properties:map", "amqp:data:binary", "amqp:amqp-sequence:list", "amqp:amqp-value:*",
    "amqp:footer:map",
};

static uint64_t number(const uint8_t *p, const uint8_t *end, int width) /* what is there of it [skip.py] */
{
    uint64_t value = 0;
    for (; width && p < end; width--)
        value = value << 8 | *p++;
    return value;
}

/* The bytes of a value with a fixed width, constructor included [AMQP 1.6]; 0 for all others. */
static unsigned fixed_width(uint8_t code)
{
    switch (code) {
    case 0x40: case 0x41: case 0x42: case 0x43: case 0x44: case 0x45: return 1;
    case 0x50: case 0x51: case 0x52: case 0x53: case 0x54: case 0x55: case 0x56: return 2;
    case 0x60: case 0x61: return 3;
    case 0x70: case 0x71: case 0x72: case 0x73: case 0x74: return 5;
    case 0x80: case 0x81: case 0x82: case 0x83: case 0x84: return 9;
    case 0x94: case 0x98: return 17;
    default: return 0;
    }
}

typedef enum { FOUND, MISSING, UNKNOWN } found_t;

/* Moves `*pos` behind `count` values, perhaps behind `size`; on an error to where that is. */
static found_t walk(const uint8_t *data, uint64_t size, uint64_t *pos, uint64_t count)
{
    uint64_t at = *pos;
    for (; count; count--) {
        if (at >= size) {
            *pos = at;
            return MISSING;
        }
        uint8_t code = data[at];
        unsigned width = fixed_width(code);
        if (width) {
            at += width;
            continue;
        }
        switch (code) {
        case 0xa0: case 0xa1: case 0xa3: case 0xc0: case 0xc1: case 0xe0:
            if (at + 1 >= size) {
                *pos = at;
                return MISSING;
            }
            at += 2 + (uint64_t)data[at + 1];
            break;
        case 0xb0: case 0xb1: case 0xb3: case 0xd0: case 0xd1: case 0xf0: {
            bool is_cut = at + 5 > size;
            at += 5 + number(data + at + 1, data + size, 4);
            if (is_cut && count > 1) {
                *pos = at;
                return MISSING;
            }
            break;
        }
        case 0x00: /* a descriptor and a value in the place of one value */
            at++;
            count += 2;
            break;
        default:
            *pos = at;
            return UNKNOWN;
        }
    }
    *pos = at;
    return FOUND;
}

static PyObject *refuse(int64_t offset, PyObject *text)
{
    if (text) {
        PyObject *error = PyObject_CallFunction(decode_error, "LO", (long long)offset, text);
        if (error)
            PyErr_SetObject(decode_error, error);
        Py_XDECREF(error);
        Py_DECREF(text);
    }
    return NULL;
}

static PyObject *skip(PyObject *self, PyObject *const *args, Py_ssize_t arg_count)
{
    if (arg_count < 1 || arg_count > 3)
        return PyErr_Format(PyExc_TypeError, "skip(data, offset=0, count=1)");
    Py_ssize_t offset = arg_count > 1 ? PyLong_AsSsize_t(args[1]) : 0;
    long long count = arg_count > 2 ? PyLong_AsLongLong(args[2]) : 1;
    if (PyErr_Occurred())
        return NULL;
    if (offset < 0)
        return refuse(offset, PyUnicode_FromString("an offset before the beginning"));
    Py_buffer view = {0};
    const uint8_t *data;
    uint64_t size, pos = (uint64_t)offset;
    if (PyBytes_CheckExact(args[0])) {
        data = (const uint8_t *)PyBytes_AS_STRING(args[0]);
        size = (uint64_t)PyBytes_GET_SIZE(args[0]);
    } else {
        if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
            return NULL;
        data = view.buf;
        size = (uint64_t)view.len;
    }
    found_t found = walk(data, size, &pos, count > 0 ? (uint64_t)count : 0);
    uint8_t code = found == UNKNOWN ? data[pos] : 0;
    if (view.obj)
        PyBuffer_Release(&view);
    if (found == UNKNOWN)
        return refuse((int64_t)pos, PyUnicode_FromFormat("no type has the constructor 0x%02x", code));
    if (found == MISSING)
        return refuse((int64_t)pos, PyUnicode_FromString("a value is missing or cut off"));
    if (pos > size)
        return refuse(offset, PyUnicode_FromFormat("a value ends at %llu, the data at %llu",
                                                             (unsigned long long)pos, (unsigned long long)size));
    return PyLong_FromUnsignedLongLong(pos);
}

/* ---- sections */

typedef struct { uint64_t start, value, stop; uint8_t code; } section_t;

static bool holds(const uint8_t *data, uint64_t size, uint64_t at, const char *text, uint64_t length)
{
    return at + length <= size && !memcmp(data + at, text, length);
}

/* The code that the descriptor at `*pos` has, in any of its forms, and `*pos` behind it; 0 for all others. */
static uint8_t descriptor(const uint8_t *data, uint64_t size, uint64_t *pos)
{
    uint64_t at = *pos, length, code = 0;
    if (at + 2 > size || data[at])
        return 0;
    switch (data[at + 1]) {
    case 0x53:
        code = at + 3 <= size ? data[at + 2] : 0;
        at += 3;
        break;
    case 0x80:
        code = at + 10 <= size ? number(data + at + 2, data + size, 8) : 0;
        at += 10;
        break;
    case 0xa3: case 0xb3: {
        int width = data[at + 1] == 0xa3 ? 1 : 4;
        if (at + 2 + (uint64_t)width > size)
            return 0;
        length = number(data + at + 2, data + size, width);
        at += 2 + (uint64_t)width;
        for (int each = 0; each < CODES; each++)
            if (strlen(SYMBOLS[each]) == length && holds(data, size, at, SYMBOLS[each], length))
                code = (uint64_t)(CODE_FIRST + each);
        at += length;
        break;
    }
    default:
        break;
    }
    if (code < CODE_FIRST || code > CODE_LAST)
        return 0;
    *pos = at;
    return (uint8_t)code;
}

static bool may_hold(uint8_t code, uint8_t constructor)
{
    switch (code) {
    case 0x70: case 0x73: case 0x76: return constructor == 0x45 || constructor == 0xc0 || constructor == 0xd0;
    case DATA: return constructor == 0xa0 || constructor == 0xb0;
    case VALUE: return true;
    default: return constructor == 0xc1 || constructor == 0xd1;
    }
}

/* Finds where the section at `start` ends, whatever its value is; false for what is none, or is cut off. */
static bool read_section(const uint8_t *data, uint64_t size, uint64_t start, section_t *found)
{
    found->start = found->value = start;
    found->code = descriptor(data, size, &found->value);
    if (!found->code || found->value >= size)
        return false;
    found->stop = found->value;
    return walk(data, size, &found->stop, 1) == FOUND && found->stop <= size;
}

static bool is_empty_binary(const uint8_t *value, uint64_t size)
{
    return (size == 2 && value[0] == 0xa0) || (size == 5 && value[0] == 0xb0);
}

static PyObject *gather(PyObject *self, PyObject *data_object)
{
    if (!PyBytes_Check(data_object))
        return PyErr_Format(PyExc_TypeError, "gather(bytes)");
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(data_object);
    uint64_t size = (uint64_t)PyBytes_GET_SIZE(data_object), at = 0, sizes[CODES] = {0};
    bool is_there[CODES] = {false}, is_full[CODES] = {false};
    section_t found;
    for (; at < size && read_section(data, size, at, &found); at = found.stop) {
        int each = found.code - CODE_FIRST;
        if (data[found.value] == 0x40 && found.code != VALUE)
            continue;
        if (!may_hold(found.code, data[found.value]) || (is_there[each] && found.code != DATA && found.code != DATA + 1))
            break;
        is_there[each] = true;
        is_full[each] = is_full[each] || !is_empty_binary(data + found.value, found.stop - found.value);
        sizes[each] += 3 + found.stop - found.value;
    }
    PyObject *parts = PyDict_New();
    uint8_t *outs[CODES] = {NULL};
    long bodies = 0;
    for (int each = 0; parts && each < CODES; each++)
        if (is_there[each]) {
            PyObject *code = PyLong_FromLong(CODE_FIRST + each);
            PyObject *part = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sizes[each]);
            if (!code || !part || PyDict_SetItem(parts, code, part) < 0)
                Py_CLEAR(parts);
            outs[each] = part ? (uint8_t *)PyBytes_AS_STRING(part) : NULL;
            Py_XDECREF(code);
            Py_XDECREF(part); /* `parts` has it */
            bodies += is_full[each] && CODE_FIRST + each >= DATA && CODE_FIRST + each <= VALUE;
        }
    if (!parts)
        return NULL;
    for (uint64_t pos = 0; pos < at; pos = found.stop) {
        read_section(data, size, pos, &found);
        if (data[found.value] == 0x40 && found.code != VALUE)
            continue;
        uint8_t **out = &outs[found.code - CODE_FIRST];
        memcpy(*out, (uint8_t[]){0, 0x53, found.code}, 3);
        memcpy(*out + 3, data + found.value, found.stop - found.value);
        *out += 3 + found.stop - found.value;
    }
    return Py_BuildValue("(NlK)", parts, bodies, (unsigned long long)at);
}

static PyObject *data_sections(PyObject *self, PyObject *data_object)
{
    if (!PyBytes_Check(data_object))
        return PyErr_Format(PyExc_TypeError, "data_sections(bytes)");
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(data_object);
    uint64_t size = (uint64_t)PyBytes_GET_SIZE(data_object), at = 0;
    PyObject *values = PyList_New(0);
    section_t found;
    for (; values && at < size && read_section(data, size, at, &found); at = found.stop) {
        if (found.code != DATA)
            continue;
        if (!may_hold(DATA, data[found.value]))
            break;
        uint64_t content = found.value + (data[found.value] == 0xa0 ? 2 : 5);
        PyObject *value = PyBytes_FromStringAndSize((const char *)data + content, (Py_ssize_t)(found.stop - content));
        if (!value || PyList_Append(values, value) < 0)
            Py_CLEAR(values);
        Py_XDECREF(value);
    }
    return values ? Py_BuildValue("(NK)", values, (unsigned long long)at) : NULL;
}

static PyObject *sections_end(PyObject *self, PyObject *const *args, Py_ssize_t arg_count)
{
    if (arg_count != 3 || !PyBytes_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "sections_end(bytes, int, int)");
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(args[0]);
    uint64_t size = (uint64_t)PyBytes_GET_SIZE(args[0]), at = PyLong_AsUnsignedLongLong(args[1]);
    long code = PyLong_AsLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    while (at + 4 <= size && !data[at] && data[at + 1] == 0x53 && data[at + 2] == code &&
           may_hold((uint8_t)code, data[at + 3])) {
        uint64_t stop = at + 3;
        if (walk(data, size, &stop, 1) != FOUND || stop > size)
            break;
        at = stop;
    }
    return PyLong_FromUnsignedLongLong(at);
}

/* ---- whether values can be decoded */

enum { NESTING_MAX = 64, ZERO_WIDTH_ELEMENTS_MAX = 16 }; /* decode.py says why */

static int64_t check_body(uint8_t code, const uint8_t *data, int64_t pos, int64_t end, int depth, bool *is_key);

/* Where the value at `pos` ends; -1 if `decode.py` would refuse it. `is_key` says whether a map may have it as a key. */
static int64_t check_value(const uint8_t *data, int64_t pos, int64_t end, int depth, bool *is_key)
{
    return pos < end ? check_body(data[pos], data, pos + 1, end, depth, is_key) : -1;
}

static bool is_utf8(const uint8_t *data, int64_t size)
{
    int64_t at = 0;
    while (at < size && data[at] < 0x80)
        at++;
    if (at == size)
        return true;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)data, (Py_ssize_t)size, NULL);
    PyErr_Clear();
    Py_XDECREF(text);
    return text != NULL;
}

static int64_t check_items(const uint8_t *data, int64_t pos, int64_t stop, uint64_t count, int depth, bool is_map)
{
    if (count > (uint64_t)(stop - pos) || (is_map && count & 1))
        return -1;
    for (uint64_t each = 0; each < count; each++) {
        bool is_key = true;
        pos = check_value(data, pos, stop, depth, &is_key);
        if (pos < 0 || (is_map && !(each & 1) && !is_key))
            return -1;
    }
    return pos == stop ? stop : -1;
}

static int64_t check_array(const uint8_t *data, int64_t pos, int64_t stop, uint64_t count, int depth, bool *is_key)
{
    if (pos < stop && !data[pos] && (pos = check_value(data, pos + 1, stop, depth + 1, is_key)) < 0)
        return -1;
    if (pos >= stop || !data[pos])
        return -1;
    uint8_t code = data[pos++];
    unsigned width = fixed_width(code);
    if (count > (width == 1 ? ZERO_WIDTH_ELEMENTS_MAX : (uint64_t)(stop - pos) / (width ? width - 1 : 1)))
        return -1;
    if (!width && !memchr("\xa0\xa1\xa3\xb0\xb1\xb3\xc0\xc1\xd0\xd1\xe0\xf0", code, 12)) /* no type */
        return -1;
    for (; count && pos >= 0; count--)
        pos = check_body(code, data, pos, stop, depth + 1, is_key);
    return pos == stop ? stop : -1;
}

static int64_t check_body(uint8_t code, const uint8_t *data, int64_t pos, int64_t end, int depth, bool *is_key)
{
    unsigned fixed = fixed_width(code);
    if (fixed) {
        int64_t stop = pos + fixed - 1;
        if (stop > end || (code == 0x56 && data[pos] > 1))
            return -1;
        if (code == 0x73) {
            uint64_t point = number(data + pos, data + end, 4);
            if (point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
                return -1;
        }
        *is_key = *is_key && code != 0x45; /* an empty list */
        return stop;
    }
    int width = code >= 0xf0 || (code >= 0xb0 && code < 0xc0) || (code >= 0xd0 && code < 0xe0) ? 4 : 1;
    int64_t stop = pos + width + (int64_t)number(data + pos, data + end, width);
    switch (code) {
    case 0xa0: case 0xb0:
        return pos + width <= end && stop <= end ? stop : -1;
    case 0xa1: case 0xa3: case 0xb1: case 0xb3:
        return pos + width <= end && stop <= end && is_utf8(data + pos + width, stop - pos - width) ? stop : -1;
    case 0xc0: case 0xc1: case 0xd0: case 0xd1: case 0xe0: case 0xf0: {
        int64_t content = pos + 2 * width;
        if (content > end || stop < content || stop > end || depth >= NESTING_MAX)
            return -1;
        uint64_t count = number(data + pos + width, data + end, width);
        if (code >= 0xe0)
            return check_array(data, content, stop, count, depth, is_key);
        *is_key = false;
        return check_items(data, content, stop, count, depth + 1, code & 1);
    }
    case 0x00:
        if (depth >= NESTING_MAX || (pos = check_value(data, pos, end, depth + 1, is_key)) < 0)
            return -1;
        return check_value(data, pos, end, depth + 1, is_key);
    default:
        return -1;
    }
}

static PyObject *is_readable(PyObject *self, PyObject *const *args, Py_ssize_t arg_count)
{
    if (arg_count != 2 || !PyBytes_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "is_readable(bytes, int)");
    int64_t pos = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    bool is_key = true;
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(args[0]);
    return PyBool_FromLong(pos >= 0 && check_value(data, pos, PyBytes_GET_SIZE(args[0]), 0, &is_key) >= 0);
}

static PyMethodDef METHODS[] = {
    {"skip", (PyCFunction)(void (*)(void))skip, METH_FASTCALL, "See skip.py."},
    {"gather", gather, METH_O, "See sections.py."},
    {"data_sections", data_sections, METH_O, "See sections.py."},
    {"is_readable", (PyCFunction)(void (*)(void))is_readable, METH_FASTCALL, "See decode.py."},
    {"sections_end", (PyCFunction)(void (*)(void))sections_end, METH_FASTCALL, "See sections.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_walk", "Walks over values.", -1, METHODS,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__walk(void)
{
    PyObject *errors = PyImport_ImportModule("emubus.codec.errors");
    if (!errors)
        return NULL;
    decode_error = PyObject_GetAttrString(errors, "DecodeError");
    Py_DECREF(errors);
    return decode_error ? PyModule_Create(&MODULE) : NULL;
}
