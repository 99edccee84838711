/* The loops over deliveries that cost most, in C: what `loops.py` has in Python, call for call.
 *
 * Knows Proton's functions (bound once, by address: nothing is linked) and the outer shape of frames. Does not know
 * what is in a message and what the broker does with it. All calls hold the GIL; pointers cross as integers.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct { size_t size; const char *start; } bytes_t; /* Proton's pn_bytes_t */

static struct {
    void *(*collector_peek)(void *);
    bool (*collector_pop)(void *);
    void *(*event_delivery)(void *);
    void *(*delivery_link)(void *);
    void *(*current)(void *);
    bool (*partial)(void *);
    bool (*settled)(void *);
    uint64_t (*remote_state)(void *);
    size_t (*pending)(void *);
    ssize_t (*recv)(void *, char *, size_t);
    bool (*advance)(void *);
    void (*update)(void *, uint64_t);
    void (*settle)(void *);
    bytes_t (*tag)(void *);
    void *(*delivery)(void *, bytes_t);
    ssize_t (*send)(void *, const char *, size_t);
} pn;

static const struct { const char *name; void **slot; } FUNCTIONS[] = {
    {"pn_collector_peek", (void **)&pn.collector_peek},
    {"pn_collector_pop", (void **)&pn.collector_pop},
    {"pn_event_delivery", (void **)&pn.event_delivery},
    {"pn_delivery_link", (void **)&pn.delivery_link},
    {"pn_link_current", (void **)&pn.current},
    {"pn_delivery_partial", (void **)&pn.partial},
    {"pn_delivery_settled", (void **)&pn.settled},
    {"pn_delivery_remote_state", (void **)&pn.remote_state},
    {"pn_delivery_pending", (void **)&pn.pending},
    {"pn_link_recv", (void **)&pn.recv},
    {"pn_link_advance", (void **)&pn.advance},
    {"pn_delivery_update", (void **)&pn.update},
    {"pn_delivery_settle", (void **)&pn.settle},
    {"pn_delivery_tag", (void **)&pn.tag},
    {"pn_delivery", (void **)&pn.delivery},
    {"pn_link_send", (void **)&pn.send},
};
#define FUNCTION_COUNT ((int)(sizeof FUNCTIONS / sizeof FUNCTIONS[0]))

static uint64_t ACCEPTED;
static PyObject *token_name, *payload_name;

static PyObject *names(PyObject *self, PyObject *unused)
{
    PyObject *list = PyList_New(FUNCTION_COUNT);
    for (int i = 0; list && i < FUNCTION_COUNT; i++)
        PyList_SET_ITEM(list, i, PyUnicode_FromString(FUNCTIONS[i].name));
    return list;
}

static PyObject *bind(PyObject *self, PyObject *args)
{
    PyObject *addresses;
    if (!PyArg_ParseTuple(args, "O!K", &PyDict_Type, &addresses, &ACCEPTED))
        return NULL;
    for (int i = 0; i < FUNCTION_COUNT; i++) {
        PyObject *address = PyDict_GetItemString(addresses, FUNCTIONS[i].name);
        if (!address)
            return PyErr_Format(PyExc_KeyError, "%s", FUNCTIONS[i].name);
        *FUNCTIONS[i].slot = PyLong_AsVoidPtr(address);
        if (PyErr_Occurred())
            return NULL;
    }
    Py_RETURN_NONE;
}

/* The delivery of the event at the collector's head; NULL without an event, and for one of another kind. */
static void *delivery_at_head(void *collector)
{
    void *event = pn.collector_peek(collector);
    return event ? pn.event_delivery(event) : NULL;
}

static int append(PyObject *list, PyObject *item)
{
    if (!item)
        return -1;
    int failed = PyList_Append(list, item);
    Py_DECREF(item);
    return failed;
}

static PyObject *take_deliveries(PyObject *self, PyObject *args)
{
    unsigned long long collector_, link_, size_max, bytes_max;
    PyObject *deliveries, *data;
    Py_ssize_t count_max;
    if (!PyArg_ParseTuple(args, "KKO!O!KnK", &collector_, &link_, &PyList_Type, &deliveries, &PyList_Type, &data,
                          &size_max, &count_max, &bytes_max))
        return NULL;
    void *collector = (void *)(uintptr_t)collector_, *link = (void *)(uintptr_t)link_;
    unsigned long long bytes = 0;
    while (PyList_GET_SIZE(data) < count_max && bytes <= bytes_max) {
        void *delivery = delivery_at_head(collector);
        /* The current one of the link: it is of this link, and has bytes that can be read. */
        if (!delivery || delivery != pn.current(link) || pn.partial(delivery) || pn.settled(delivery)
            || pn.remote_state(delivery))
            break;
        size_t size = pn.pending(delivery);
        if (!size || size > size_max)
            break;
        PyObject *message = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (!message)
            return NULL;
        if (pn.recv(link, PyBytes_AS_STRING(message), size) != (ssize_t)size) { /* negative: it was aborted */
            Py_DECREF(message);
            break;
        }
        if (append(data, message) < 0 || append(deliveries, PyLong_FromVoidPtr(delivery)) < 0)
            return NULL;
        pn.advance(link); /* before the next event: the other order frees the delivery too early */
        pn.collector_pop(collector);
        bytes += size;
    }
    return PyLong_FromUnsignedLongLong(bytes);
}

static PyObject *take_accepted(PyObject *self, PyObject *args)
{
    unsigned long long collector_, link_;
    PyObject *open, *tokens;
    Py_ssize_t count_max;
    if (!PyArg_ParseTuple(args, "KKO!O!n", &collector_, &link_, &PyDict_Type, &open, &PyList_Type, &tokens,
                          &count_max))
        return NULL;
    void *collector = (void *)(uintptr_t)collector_, *link = (void *)(uintptr_t)link_;
    Py_ssize_t before = PyList_GET_SIZE(tokens);
    while (PyList_GET_SIZE(tokens) < count_max) {
        void *delivery = delivery_at_head(collector);
        if (!delivery || pn.delivery_link(delivery) != link || pn.remote_state(delivery) != ACCEPTED
            || !pn.settled(delivery))
            break;
        bytes_t tag = pn.tag(delivery);
        PyObject *token = PyBytes_FromStringAndSize(tag.start, (Py_ssize_t)tag.size);
        if (!token)
            return NULL;
        PyObject *entry = PyDict_GetItemWithError(open, token);
        if (entry != Py_None) { /* unknown, or waiting for the outcome of an earlier disposition */
            Py_DECREF(token);
            if (!entry && PyErr_Occurred())
                return NULL;
            break;
        }
        if (PyDict_DelItem(open, token) < 0 || append(tokens, token) < 0)
            return NULL;
        pn.settle(delivery);
        pn.collector_pop(collector);
    }
    return PyLong_FromSsize_t(PyList_GET_SIZE(tokens) - before);
}

static PyObject *accept(PyObject *self, PyObject *args)
{
    PyObject *deliveries, *positions;
    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &deliveries, &positions))
        return NULL;
    PyObject *fast = PySequence_Fast(positions, "positions are a sequence");
    if (!fast)
        return NULL;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PySequence_Fast_GET_ITEM(fast, i));
        PyObject *address = PyErr_Occurred() ? NULL : PyList_GetItem(deliveries, at);
        void *delivery = address ? PyLong_AsVoidPtr(address) : NULL;
        if (!delivery) {
            Py_DECREF(fast);
            return NULL;
        }
        pn.update(delivery, ACCEPTED);
        pn.settle(delivery);
    }
    Py_DECREF(fast);
    Py_RETURN_NONE;
}

static const bytes_t NO_TOKEN = {3, "\0\0\0"}; /* see `loops.py` */

/* The size of the message, or -1 for a Python error. */
static Py_ssize_t send_one(void *link, PyObject *item, PyObject *open, int presettled)
{
    PyObject *token = PyObject_GetAttr(item, token_name), *payload = PyObject_GetAttr(item, payload_name);
    Py_ssize_t size = -1;
    if (token && payload && PyBytes_Check(token) && PyBytes_Check(payload)) {
        bytes_t tag = {(size_t)PyBytes_GET_SIZE(token), PyBytes_AS_STRING(token)};
        void *delivery = pn.delivery(link, presettled ? NO_TOKEN : tag);
        pn.send(link, PyBytes_AS_STRING(payload), (size_t)PyBytes_GET_SIZE(payload));
        pn.advance(link);
        if (presettled)
            pn.settle(delivery);
        if (presettled || PyDict_SetItem(open, token, Py_None) == 0)
            size = PyBytes_GET_SIZE(payload);
    } else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "token and payload of a delivery are bytes");
    Py_XDECREF(token);
    Py_XDECREF(payload);
    return size;
}

static PyObject *send_all(PyObject *self, PyObject *args)
{
    unsigned long long link;
    PyObject *items, *open;
    int presettled;
    if (!PyArg_ParseTuple(args, "KOO!p", &link, &items, &PyDict_Type, &open, &presettled))
        return NULL;
    PyObject *fast = PySequence_Fast(items, "deliveries are a sequence");
    if (!fast)
        return NULL;
    Py_ssize_t sent = 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
        Py_ssize_t size = send_one((void *)(uintptr_t)link, PySequence_Fast_GET_ITEM(fast, i), open, presettled);
        if (size < 0) {
            Py_DECREF(fast);
            return NULL;
        }
        sent += size;
    }
    Py_DECREF(fast);
    return PyLong_FromSsize_t(sent);
}

/* ---- frames */

static uint32_t u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Behind a boolean, or NULL. `nullable`: null will do. */
static const uint8_t *past_boolean(const uint8_t *p, const uint8_t *end, bool nullable)
{
    if (p >= end)
        return NULL;
    if (*p == 0x41 || *p == 0x42 || (nullable && *p == 0x40))
        return p + 1;
    return *p == 0x56 && p + 2 <= end ? p + 2 : NULL;
}

static const uint8_t *past_uint(const uint8_t *p, const uint8_t *end, bool nullable)
{
    if (p >= end)
        return NULL;
    if (*p == 0x43 || (nullable && *p == 0x40))
        return p + 1;
    if (*p == 0x52)
        return p + 2 <= end ? p + 2 : NULL;
    return *p == 0x70 && p + 5 <= end ? p + 5 : NULL;
}

/* A disposition with accepted or released, as all usual encoders write it (see `loops.py`). */
static bool is_simple_disposition(const uint8_t *p, const uint8_t *end)
{
    static const uint8_t LIST32[] = {0xd0, 0, 0, 0, 4, 0, 0, 0, 0};
    if (end - p < 5 || p[0] || p[1] != 0x53 || p[2] != 0x15)
        return false;
    p += p[3] == 0xc0 ? 6 : p[3] == 0xd0 ? 12 : end - p;
    p = past_boolean(p, end, false);
    p = p ? past_uint(p, end, false) : NULL;
    p = p ? past_uint(p, end, true) : NULL;
    p = p ? past_boolean(p, end, true) : NULL;
    if (!p || end - p < 4 || p[0] || p[1] != 0x53 || (p[2] != 0x24 && p[2] != 0x26))
        return false;
    p += 3;
    if (*p == 0x45)
        p++;
    else if (*p == 0xc0 && end - p >= 3 && p[1] == 1 && !p[2])
        p += 3;
    else if (end - p >= 9 && !memcmp(p, LIST32, 9))
        p += 9;
    else
        return false;
    if (p == end)
        return true;
    p = past_boolean(p, end, true);
    return p == end;
}

enum { FORMAT_END_MAX = 80, LIST8 = 0xc0, LIST32 = 0xd0, LIST8_ITEMS = 14, LIST32_ITEMS = 20, HEAD_MAX = 7 };

typedef struct { uint8_t bytes[HEAD_MAX]; int size; } head_t; /* channel and handle of a frame */

/* 1 if the head of a frame, whose handle is at `handle`, is in a set of heads, else 0; -1 for a Python error. */
static int has_head(PyObject *heads, const uint8_t *frame, const uint8_t *handle, const uint8_t *end, head_t *known)
{
    int handle_bytes = *handle == 0x52 ? 2 : *handle == 0x70 ? 5 : 1;
    if (handle + handle_bytes > end)
        return 0;
    head_t head = {{frame[6], frame[7]}, 2 + handle_bytes};
    memcpy(head.bytes + 2, handle, (size_t)handle_bytes);
    if (head.size == known->size && !memcmp(head.bytes, known->bytes, (size_t)head.size))
        return 1;
    PyObject *key = PyBytes_FromStringAndSize((char *)head.bytes, head.size);
    int found = key ? PySet_Contains(heads, key) : -1;
    Py_XDECREF(key);
    if (found == 1)
        *known = head;
    return found;
}

/* 1 for a flow of a link in `attached` that wants no answer, 0 for anything else, -1 for a Python error. */
static int is_simple_flow(const uint8_t *frame, const uint8_t *end, PyObject *attached)
{
    enum { HANDLE = 4, DRAIN = 8, PROPERTIES = 10 };
    bool is_small = frame[11] == LIST8;
    const uint8_t *p = frame + (is_small ? LIST8_ITEMS : LIST32_ITEMS), *handle = NULL;
    if (p > end || (!is_small && frame[11] != LIST32))
        return 0;
    uint32_t size = is_small ? frame[12] : u32(frame + 12), count = is_small ? frame[13] : u32(frame + 16);
    if (count <= HANDLE || count > PROPERTIES + 1 || size != (uint32_t)(end - frame) - (is_small ? 13 : 16))
        return 0;
    for (uint32_t i = 0; p && i < count; i++) {
        if (i == HANDLE)
            handle = p;
        if (i < DRAIN)
            p = past_uint(p, end, i == 0 || i > HANDLE);
        else if (i < PROPERTIES && end - p >= 2 && p[0] == 0x56 && !p[1])
            p += 2;
        else
            p = p < end && (*p == 0x40 || (i < PROPERTIES && *p == 0x42)) ? p + 1 : NULL;
    }
    head_t known = {{0}, 0};
    return p == end ? has_head(attached, frame, handle, end, &known) : 0;
}

/* 1 for a transfer on a link of `sending` that is no batch, 0 for anything else, -1 for a Python error. */
static int is_plain_transfer(const uint8_t *frame, const uint8_t *end, PyObject *sending, head_t *known)
{
    static const uint8_t BATCH[] = {0x70, 0x80, 0x01, 0x37, 0x00};
    const uint8_t *handle = frame + (frame[11] == LIST8 ? LIST8_ITEMS : LIST32_ITEMS);
    int found = has_head(sending, frame, handle, end, known);
    if (found != 1)
        return found;
    const uint8_t *last = frame + 8 + FORMAT_END_MAX < end ? frame + 8 + FORMAT_END_MAX : end;
    for (const uint8_t *p = handle; p + 5 <= last; p++)
        if (*p == BATCH[0] && !memcmp(p, BATCH, 5))
            return 0;
    return 1;
}

static PyObject *passthrough_end(PyObject *self, PyObject *args)
{
    Py_buffer view;
    unsigned long size_max;
    PyObject *sending, *attached;
    Py_ssize_t pos, count_max = PY_SSIZE_T_MAX, count = 0;
    if (!PyArg_ParseTuple(args, "y*nkOO|n", &view, &pos, &size_max, &sending, &attached, &count_max))
        return NULL;
    const uint8_t *data = view.buf;
    Py_ssize_t length = view.len;
    head_t known = {{0}, 0};
    int verdict = 1;
    while (count < count_max && pos + 4 <= length) {
        uint32_t size = u32(data + pos);
        if (size < 8 || size > size_max || (Py_ssize_t)size > length - pos)
            break;
        const uint8_t *frame = data + pos, *end = frame + size;
        if (size > 10) {
            if (frame[4] != 2)
                break;
            bool is_described = !frame[8] && frame[9] == 0x53;
            if (is_described && frame[10] == 0x14 && size > LIST32_ITEMS)
                verdict = is_plain_transfer(frame, end, sending, &known);
            else if (is_described && frame[10] == 0x13 && size > LIST8_ITEMS)
                verdict = is_simple_flow(frame, end, attached);
            else
                verdict = is_simple_disposition(frame + 8, end);
            if (verdict != 1)
                break;
        }
        pos += size;
        count++;
    }
    PyBuffer_Release(&view);
    return verdict < 0 ? NULL : Py_BuildValue("nn", pos, count);
}

static PyObject *without_tokens(PyObject *self, PyObject *output)
{
    static const uint8_t WITH[] = {0xa0, 3, 0, 0, 0}, WITHOUT[] = {0xb0, 0, 0, 0, 0};
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(output, &bytes, &size) < 0)
        return NULL;
    PyObject *changed = NULL; /* made for the first tag */
    const uint8_t *p = (const uint8_t *)bytes, *end = p + size;
    if (size >= 8 && !memcmp(p, "AMQP", 4))
        p += 8;
    for (; end - p >= 8; p += u32(p)) {
        uint32_t frame_size = u32(p);
        if (frame_size < 8 || frame_size > (size_t)(end - p))
            break;
        if (frame_size <= LIST32_ITEMS || p[8] || p[9] != 0x53 || p[10] != 0x14)
            continue;
        const uint8_t *tag = past_uint(p + (p[11] == LIST8 ? LIST8_ITEMS : LIST32_ITEMS), end, false); /* handle */
        tag = tag ? past_uint(tag, end, false) : NULL; /* delivery-id */
        if (!tag || end - tag < (ptrdiff_t)sizeof WITH || memcmp(tag, WITH, sizeof WITH))
            continue;
        if (!changed && !(changed = PyBytes_FromStringAndSize(bytes, size)))
            return NULL;
        memcpy(PyBytes_AS_STRING(changed) + ((char *)tag - bytes), WITHOUT, sizeof WITHOUT);
    }
    return changed ? changed : Py_NewRef(output);
}

static PyMethodDef METHODS[] = {
    {"names", names, METH_NOARGS, "The functions of Proton that `bind` wants."},
    {"bind", bind, METH_VARARGS, "bind(addresses, delivery event type, accepted): once, before all else."},
    {"take_deliveries", take_deliveries, METH_VARARGS, "See loops.take_deliveries."},
    {"take_accepted", take_accepted, METH_VARARGS, "See loops.take_accepted."},
    {"accept", accept, METH_VARARGS, "See loops.accept."},
    {"send", send_all, METH_VARARGS, "See loops.send."},
    {"without_tokens", without_tokens, METH_O, "See loops.without_tokens."},
    {"passthrough_end", passthrough_end, METH_VARARGS, "See loops.passthrough_end."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_delivery_loops", "Loops over deliveries.", -1, METHODS,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__delivery_loops(void)
{
    token_name = PyUnicode_InternFromString("token");
    payload_name = PyUnicode_InternFromString("payload");
    return token_name && payload_name ? PyModule_Create(&MODULE) : NULL;
}
