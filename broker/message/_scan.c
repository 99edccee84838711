/* Reads a message in the form that SDKs write, in one pass: what `scan.py` describes.
 *
 * Knows the sections of a message, the keys that Service Bus reads and the stored form (`stored_form.py`). Whatever is
 * unusual is left to the parser in Python (`message.py`): the answer is None then.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct { const uint8_t *pos, *end; } reader_t;

enum { HEADER = 0x70, ANNOTATIONS = 0x72, PROPERTIES = 0x73, APPLICATION_PROPERTIES = 0x74, DATA = 0x75, VALUE = 0x77 };
enum { NULL_VALUE = 0x40, STRING8 = 0xa1, STRING32 = 0xb1, SYMBOL8 = 0xa3, GROUP_ID = 10 };
enum { FORM_VERSION = 1, FORM_HEAD_BYTES = 10, HEADER_BYTES_MAX = 11 };
enum { NEW_ID_BYTES = 32, ADDED_BYTES_MAX = 6 + 2 + NEW_ID_BYTES };

typedef struct { uint8_t bytes[ADDED_BYTES_MAX]; size_t size; } added_t; /* how properties with a new message id begin */

static const char PARTITION_KEY[] = "x-opt-partition-key";

static uint32_t u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_u32(uint8_t *p, size_t value)
{
    for (int i = 3; i >= 0; i--, value >>= 8)
        p[i] = (uint8_t)value;
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

/* Moves behind one value; false for what is cut off, described or unknown. */
static bool skip(reader_t *in)
{
    size_t left = (size_t)(in->end - in->pos), size;
    if (!left)
        return false;
    uint8_t code = *in->pos;
    size = fixed_width(code);
    if (!size)
        switch (code) {
        case 0xa0: case 0xa1: case 0xa3: case 0xc0: case 0xc1: case 0xe0:
            if (left < 2)
                return false;
            size = 2 + (size_t)in->pos[1];
            break;
        case 0xb0: case 0xb1: case 0xb3: case 0xd0: case 0xd1: case 0xf0:
            if (left < 5)
                return false;
            size = 5 + (size_t)u32(in->pos + 1);
            break;
        default:
            return false;
        }
    if (size > left)
        return false;
    in->pos += size;
    return true;
}

/* Opens a list or map, whose constructors are `empty`, `small` and `large`: its items and their number. */
static bool open_items(reader_t *in, uint8_t empty, uint8_t small, reader_t *items, uint32_t *count)
{
    const uint8_t *at = in->pos;
    if (!skip(in))
        return false;
    items->end = in->pos;
    if (*at == empty) {
        items->pos = at + 1;
        *count = 0;
        return true;
    }
    size_t head = *at == small ? 3 : *at == small + 0x10 ? 9 : 0;
    if (!head || (size_t)(in->pos - at) < head)
        return false;
    items->pos = at + head;
    *count = head == 3 ? at[2] : u32(at + 5);
    return true;
}

static bool skip_all(reader_t *items, uint32_t count)
{
    while (count--)
        if (!skip(items))
            return false;
    return items->pos == items->end;
}

/* Whether a string is UTF-8; nearly every message id is ASCII. */
static bool is_utf8(const uint8_t *text, size_t size)
{
    uint8_t all = 0;
    for (size_t i = 0; i < size; i++)
        all |= text[i];
    if (all < 0x80)
        return true;
    PyObject *decoded = PyUnicode_DecodeUTF8((const char *)text, (Py_ssize_t)size, NULL);
    if (!decoded)
        PyErr_Clear();
    Py_XDECREF(decoded);
    return decoded != NULL;
}

/* A string of up to `length_max` bytes at the reader; NULL: none, or (with an exception cleared) no UTF-8. */
static PyObject *string8(const uint8_t *at, size_t length_max)
{
    if (*at != STRING8 || at[1] > length_max)
        return NULL;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)at + 2, at[1], NULL);
    if (!text)
        PyErr_Clear();
    return text;
}

/* The header that a delivery begins with, up to its delivery count; 0 bytes for a header with a time to live. */
static size_t read_header(reader_t *in, uint8_t *out)
{
    uint8_t fields[8] = {NULL_VALUE, NULL_VALUE, NULL_VALUE, NULL_VALUE};
    size_t size = 4;
    if (in) {
        reader_t items;
        uint32_t count;
        if (!open_items(in, 0x45, 0xc0, &items, &count) || count > 5)
            return 0;
        size = 0;
        for (uint32_t i = 0; i < count; i++) {
            const uint8_t *at = items.pos;
            if (!skip(&items))
                return 0;
            bool boolean = *at >= 0x40 && *at <= 0x42;
            if (i == 1 && *at == 0x50) {
                fields[size++] = 0x50;
                fields[size++] = at[1];
            } else if (i == 4 ? *at == NULL_VALUE || *at == 0x43 || *at == 0x52 || *at == 0x70
                              : i == 1 || i == 2 ? *at == NULL_VALUE : boolean) {
                if (i < 4)
                    fields[size++] = *at;
            } else
                return 0;
        }
        if (items.pos != items.end)
            return 0;
        for (uint32_t i = count; i < 4; i++)
            fields[size++] = NULL_VALUE;
    }
    static const uint8_t HEAD[] = {0, 0x53, HEADER, 0xc0};
    memcpy(out, HEAD, 4);
    out[4] = (uint8_t)(size + 6);
    out[5] = 5;
    memcpy(out + 6, fields, size);
    return 6 + size;
}

/* The annotations: none but the partition key that Service Bus reads. */
static bool read_annotations(reader_t *in, size_t length_max, reader_t *entries, uint32_t *count, PyObject **key)
{
    reader_t items;
    if (!open_items(in, 0, 0xc1, &items, count) || *count & 1)
        return false;
    *entries = items;
    for (uint32_t i = 0; i < *count; i += 2) {
        const uint8_t *name = items.pos;
        if (!skip(&items) || (*name != SYMBOL8 && *name != STRING8))
            return false;
        const uint8_t *value = items.pos;
        if (!skip(&items))
            return false;
        if (name[1] >= 6 && !memcmp(name + 2, PARTITION_KEY, 6)) {
            if (name[1] != sizeof PARTITION_KEY - 1 || memcmp(name + 2, PARTITION_KEY, name[1]) || *key)
                return false;
            *key = string8(value, length_max);
            if (!*key)
                return false;
        }
    }
    return items.pos == items.end;
}

/* The beginning of properties with a new message id, of `count` items with `more` bytes behind the id. */
static bool add_id(added_t *added, PyObject *new_id, uint32_t count, size_t more)
{
    static const uint8_t HEAD[] = {0, 0x53, PROPERTIES, 0xc0};
    size_t size = 1 + 2 + NEW_ID_BYTES + more;
    if (size > 255)
        return false;
    PyObject *id = PyObject_CallNoArgs(new_id);
    bool good = id && PyUnicode_IS_COMPACT_ASCII(id) && PyUnicode_GET_LENGTH(id) == NEW_ID_BYTES;
    if (good) {
        memcpy(added->bytes, HEAD, 4);
        added->bytes[4] = (uint8_t)size;
        added->bytes[5] = (uint8_t)count;
        added->bytes[6] = STRING8;
        added->bytes[7] = NEW_ID_BYTES;
        memcpy(added->bytes + 8, PyUnicode_DATA(id), NEW_ID_BYTES);
        added->size = ADDED_BYTES_MAX;
    }
    Py_XDECREF(id);
    return good;
}

/* The properties: a message id that is a string of UTF-8 or is missing, and a group id that is a string or null.
 * Without an id `added` and `rest` are what stands in the section's place, and behind that. */
static bool read_properties(reader_t *in, size_t length_max, PyObject *new_id, PyObject **group_id, added_t *added,
                            const uint8_t **rest)
{
    reader_t items;
    uint32_t count;
    bool small = in->pos[0] == 0xc0;
    if (!open_items(in, 0x45, 0xc0, &items, &count))
        return false;
    if (!count) {
        *rest = in->pos;
        return items.pos == items.end && add_id(added, new_id, 1, 0);
    }
    if (items.pos >= items.end)
        return false;
    if (*items.pos == NULL_VALUE) {
        *rest = items.pos + 1;
        if (!small || !add_id(added, new_id, count, (size_t)(items.end - *rest)))
            return false;
    } else if (*items.pos != STRING8 && *items.pos != STRING32)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *at = items.pos;
        if (!skip(&items))
            return false;
        if (i == 0 && *at != NULL_VALUE) {
            size_t head = *at == STRING8 ? 2 : 5;
            if ((size_t)(items.pos - at) > length_max + 2 || !is_utf8(at + head, (size_t)(items.pos - at) - head))
                return false;
        }
        if (i == GROUP_ID && *at != NULL_VALUE) {
            *group_id = string8(at, length_max);
            if (!*group_id)
                return false;
        }
    }
    return items.pos == items.end;
}

/* The application properties, if any (`*properties` is where they begin), and the body, up to the end. */
static bool read_rest(reader_t *in, const uint8_t **properties)
{
    uint8_t last = PROPERTIES;
    while (in->pos < in->end) {
        if (in->end - in->pos < 4 || in->pos[0] || in->pos[1] != 0x53)
            return false;
        uint8_t code = in->pos[2];
        in->pos += 3;
        if (code == APPLICATION_PROPERTIES && last == PROPERTIES) {
            reader_t items;
            uint32_t count;
            *properties = in->pos - 3;
            if (!open_items(in, 0, 0xc1, &items, &count) || count & 1 || !skip_all(&items, count))
                return false;
        } else if (code == DATA && last != VALUE) {
            if ((*in->pos != 0xa0 && *in->pos != 0xb0) || !skip(in))
                return false;
        } else if (code != VALUE || last == VALUE || last == DATA || !skip(in))
            return false;
        last = code;
    }
    return true;
}

static bool at_section(const reader_t *in, uint8_t code)
{
    return in->end - in->pos >= 4 && !in->pos[0] && in->pos[1] == 0x53 && in->pos[2] == code;
}

static PyObject *stored_form(const uint8_t *header, size_t header_bytes, const reader_t *entries, uint32_t count,
                             const added_t *added, const uint8_t *rest, const uint8_t *end)
{
    size_t entries_bytes = (size_t)(entries->end - entries->pos), rest_bytes = (size_t)(end - rest);
    size_t size = FORM_HEAD_BYTES + header_bytes + entries_bytes + added->size + rest_bytes;
    PyObject *form = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!form)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(form);
    out[0] = FORM_VERSION;
    out[1] = (uint8_t)header_bytes;
    put_u32(out + 2, count);
    put_u32(out + 6, entries_bytes);
    out += FORM_HEAD_BYTES;
    memcpy(out, header, header_bytes);
    out += header_bytes;
    memcpy(out, entries->pos, entries_bytes);
    out += entries_bytes;
    memcpy(out, added->bytes, added->size);
    memcpy(out + added->size, rest, rest_bytes);
    return form;
}

/* The message with a new message id; None if it has one. */
static PyObject *with_id(const uint8_t *data, const uint8_t *bare, const added_t *added, const uint8_t *rest,
                         const uint8_t *end)
{
    if (!added->size)
        return Py_NewRef(Py_None);
    size_t before = (size_t)(bare - data), behind = (size_t)(end - rest);
    PyObject *whole = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(before + added->size + behind));
    if (whole) {
        char *out = PyBytes_AS_STRING(whole);
        memcpy(out, data, before);
        memcpy(out + before, added->bytes, added->size);
        memcpy(out + before + added->size, rest, behind);
    }
    return whole;
}

static PyObject *scan(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4 || !PyBytes_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "scan(bytes, int, int, callable)");
    size_t length_max = PyLong_AsSize_t(args[1]), bytes_max = PyLong_AsSize_t(args[2]);
    if (PyErr_Occurred())
        return NULL;
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(args[0]);
    reader_t in = {data, data + PyBytes_GET_SIZE(args[0])}, entries = {data, data};
    uint8_t header[HEADER_BYTES_MAX];
    size_t header_bytes = 0;
    uint32_t entries_count = 0;
    added_t added = {{0}, 0};
    PyObject *partition_key = NULL, *group_id = NULL;
    bool usual = (size_t)(in.end - in.pos) <= bytes_max;
    if (usual && at_section(&in, HEADER)) {
        in.pos += 3;
        header_bytes = read_header(&in, header);
    } else
        header_bytes = read_header(NULL, header);
    usual = usual && header_bytes;
    if (usual && at_section(&in, ANNOTATIONS)) {
        in.pos += 3;
        usual = read_annotations(&in, length_max, &entries, &entries_count, &partition_key);
    }
    const uint8_t *bare = in.pos, *rest = in.pos;
    if (usual && at_section(&in, PROPERTIES)) {
        in.pos += 3;
        usual = read_properties(&in, length_max, args[3], &group_id, &added, &rest);
    } else
        usual = usual && in.pos < in.end && add_id(&added, args[3], 1, 0);
    const uint8_t *properties = NULL;
    usual = usual && read_rest(&in, &properties);
    PyObject *form = NULL, *whole = NULL;
    if (usual) {
        form = stored_form(header, header_bytes, &entries, entries_count, &added, rest, in.end);
        whole = with_id(data, bare, &added, rest, in.end);
    }
    if (form && whole) {
        Py_ssize_t at = !properties ? -1 : properties - data;
        if (properties && added.size) /* the new id moves what lies behind `rest` */
            at = bare - data + (Py_ssize_t)added.size + (properties - rest);
        return Py_BuildValue("(NNNNn)", form, group_id ? group_id : Py_NewRef(Py_None),
                             partition_key ? partition_key : Py_NewRef(Py_None), whole, at);
    }
    Py_XDECREF(form);
    Py_XDECREF(whole);
    Py_XDECREF(partition_key);
    Py_XDECREF(group_id);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"scan", (PyCFunction)(void (*)(void))scan, METH_FASTCALL, "See scan.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_scan", "Reads messages.", -1, METHODS,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__scan(void)
{
    return PyModule_Create(&MODULE);
}
