/* The thread of a journal in C: what `writing.py` has in Python, without the GIL.
 *
 * Knows how the thread is asked and answers, and how a write is made durable. Does not know what is written. `run` belongs
 * to one thread, all else to the one that has the writer now; the pipes say which of the two may touch the writes.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define WRITES_MAX 3 /* nothing, for the wait behind it; the record of a lap; a group */

typedef struct {
    PyObject_HEAD
    int fd;
    int asked, ask;  /* the two ends of a pipe: a byte for each `start` */
    int ended, end;  /* a byte when its writes have ended */
    int count;       /* of the writes; from here on: the thread's from `start` until it answers */
    off_t offsets[WRITES_MAX];
    PyObject *data[WRITES_MAX];
    int waits; /* behind the last write, too */
    int done_count;
    int code;
} Writer;

static int wait_for_disk(int fd)
{
#ifdef __APPLE__
    return fcntl(fd, F_FULLFSYNC); /* its fsync leaves data in the drive's cache */
#else
    return fdatasync(fd);
#endif
}

/* 0, or the error: negative if nothing was written, positive if the wait behind the write failed. */
static int write_one(int fd, const char *data, size_t size, off_t offset, int waits)
{
    ssize_t written;
    do
        written = pwrite(fd, data, size, offset);
    while (written < 0 && errno == EINTR);
    if (written < 0)
        return -errno;
    if ((size_t)written != size)
        return -ENOSPC;
    if (!waits)
        return 0;
    int failed;
    do
        failed = wait_for_disk(fd);
    while (failed < 0 && errno == EINTR);
    return failed < 0 ? errno : 0;
}

static void write_all(Writer *self)
{
    self->code = 0;
    for (self->done_count = 0; self->done_count < self->count; self->done_count++) {
        PyObject *data = self->data[self->done_count]; /* bytes do not change, and `start` holds them */
        self->code = write_one(self->fd, PyBytes_AS_STRING(data), (size_t)PyBytes_GET_SIZE(data),
                               self->offsets[self->done_count],
                               self->waits || self->done_count + 1 < self->count);
        if (self->code)
            return;
    }
}

/* Reads a byte: 1, 0 at the pipe's end, -1 with errno. */
static ssize_t take_byte(int fd)
{
    char byte;
    ssize_t count;
    do
        count = read(fd, &byte, 1);
    while (count < 0 && errno == EINTR);
    return count;
}

static ssize_t put_byte(int fd)
{
    ssize_t count;
    do
        count = write(fd, "", 1);
    while (count < 0 && errno == EINTR);
    return count;
}

static PyObject *writer_run(Writer *self, PyObject *unused)
{
    Py_BEGIN_ALLOW_THREADS
    while (take_byte(self->asked) == 1) {
        write_all(self);
        put_byte(self->end);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static void forget_writes(Writer *self)
{
    for (; self->count; self->count--)
        Py_CLEAR(self->data[self->count - 1]);
}

/* Takes the writes of a call over; -1 with an exception, and then none. */
static int take_writes(Writer *self, PyObject *args)
{
    PyObject *writes;
    int waits = 1;
    if (!PyArg_ParseTuple(args, "O|p", &writes, &waits))
        return -1;
    if (self->count) {
        PyErr_Format(PyExc_ValueError, "%d writes have not ended", self->count);
        return -1;
    }
    PyObject *all = PySequence_Fast(writes, "writes are a sequence");
    if (!all)
        return -1;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(all);
    if (count > WRITES_MAX)
        PyErr_Format(PyExc_ValueError, "%zd writes at a time; at most %d", count, WRITES_MAX);
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++) {
        PyObject *write = PySequence_Fast_GET_ITEM(all, i), *data;
        long long offset;
        if (!PyTuple_Check(write))
            PyErr_SetString(PyExc_TypeError, "a write is an offset and bytes");
        else if (PyArg_ParseTuple(write, "LS", &offset, &data)) {
            Py_INCREF(data);
            self->data[i] = data;
            self->offsets[i] = (off_t)offset;
            self->count = (int)i + 1;
        }
    }
    Py_DECREF(all);
    self->waits = waits;
    if (!PyErr_Occurred())
        return 0;
    forget_writes(self);
    return -1;
}

static PyObject *writer_start(Writer *self, PyObject *args)
{
    if (take_writes(self, args) < 0)
        return NULL;
    if (put_byte(self->ask) < 0) {
        forget_writes(self);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

static PyObject *writer_write(Writer *self, PyObject *args)
{
    if (take_writes(self, args) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    write_all(self);
    Py_END_ALLOW_THREADS
    forget_writes(self);
    return Py_BuildValue("ii", self->done_count, self->code);
}

static PyObject *writer_fileno(Writer *self, PyObject *unused)
{
    return PyLong_FromLong(self->ended);
}

static PyObject *writer_finish(Writer *self, PyObject *unused)
{
    ssize_t count;
    Py_BEGIN_ALLOW_THREADS
    count = take_byte(self->ended);
    Py_END_ALLOW_THREADS
    if (count < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    forget_writes(self);
    return Py_BuildValue("ii", self->done_count, self->code);
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static PyObject *writer_stop(Writer *self, PyObject *unused)
{
    close_end(&self->ask);
    Py_RETURN_NONE;
}

static PyObject *writer_close(Writer *self, PyObject *unused)
{
    close_end(&self->ask);
    close_end(&self->asked);
    close_end(&self->ended);
    close_end(&self->end);
    self->fd = -1; /* the file is its owner's, who may close it now */
    Py_RETURN_NONE;
}

static int open_pipe(int *reads, int *writes)
{
    int ends[2];
    if (pipe(ends) < 0)
        return -1;
    *reads = ends[0];
    *writes = ends[1];
    return fcntl(ends[0], F_SETFD, FD_CLOEXEC) < 0 || fcntl(ends[1], F_SETFD, FD_CLOEXEC) < 0 ? -1 : 0;
}

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int fd;
    if (!PyArg_ParseTuple(args, "i", &fd))
        return NULL;
    Writer *self = (Writer *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->fd = fd;
    self->asked = self->ask = self->ended = self->end = -1;
    if (open_pipe(&self->asked, &self->ask) < 0 || open_pipe(&self->ended, &self->end) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void writer_dealloc(Writer *self)
{
    forget_writes(self);
    Py_XDECREF(writer_close(self, NULL));
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef WRITER_METHODS[] = {
    {"run", (PyCFunction)writer_run, METH_NOARGS, NULL},
    {"start", (PyCFunction)writer_start, METH_VARARGS, NULL},
    {"write", (PyCFunction)writer_write, METH_VARARGS, NULL},
    {"fileno", (PyCFunction)writer_fileno, METH_NOARGS, NULL},
    {"finish", (PyCFunction)writer_finish, METH_NOARGS, NULL},
    {"stop", (PyCFunction)writer_stop, METH_NOARGS, NULL},
    {"close", (PyCFunction)writer_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot WRITER_SLOTS[] = {
    {Py_tp_new, writer_new},
    {Py_tp_dealloc, writer_dealloc},
    {Py_tp_methods, WRITER_METHODS},
    {0, NULL},
};

static PyType_Spec WRITER = {
    .name = "emubus.storage.journal._writing.Writer",
    .basicsize = sizeof(Writer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = WRITER_SLOTS,
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "_writing", .m_size = -1};

PyMODINIT_FUNC PyInit__writing(void)
{
    PyObject *module = PyModule_Create(&MODULE);
    PyObject *type = module ? PyType_FromSpec(&WRITER) : NULL;
    if (!type || PyModule_AddObject(module, "Writer", type) < 0) {
        Py_XDECREF(type);
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
