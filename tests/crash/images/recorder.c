/* Records what a process does to the files of one folder, with the data, before and after each call, in one order with
 * the notes of the program itself; can let syncs of a store wait for the journal, and let syncs fail. Preloaded.
 *
 * Environment: RECORD_DIR the folder (absolute), RECORD_LOG the log, which is appended to.
 * RECORD_SLOW: a sync of the first store's file waits for so many writes of the journal, as long as there is one every
 * 20 ms: so laps begin while one store lags behind.
 * RECORD_FAIL: "text skip count done": of the syncs of files whose path has the text, these fail with EIO; done: 1 if
 * the data is on the disk all the same. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, WRITE, SYNC, TRUNCATE, RENAME, UNLINK, MKDIR, RMDIR, NOTE };
enum { BEGIN = 0, END = 1 };
enum { DSYNC = 1, CREATED = 2, FOLDER = 4 };

struct record { /* `trace.RECORD` */
    uint8_t type, phase, flags, failed;
    uint32_t op, bytes;
    uint64_t inode, offset;
} __attribute__((packed));

enum { FDS = 4096 };
struct known { uint64_t inode; uint8_t flags; char kind; /* 'j' journal, 's' a slow store, 'o' other */ };

static struct known fds[FDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static char folder[PATH_MAX];
static size_t folder_bytes;
static uint32_t ops;
static volatile long journal_writes;
static long slow, fail_skip, fail_count, fail_done;
static char fail_text[256];

static void *next(void **known, const char *name) {
    if (!*known)
        *known = dlsym(RTLD_NEXT, name);
    return *known;
}
#define REAL(name) ((__typeof__(&name))next(&real_##name, #name))
#define DECLARE(name) static void *real_##name
DECLARE(open); DECLARE(openat); DECLARE(close); DECLARE(write); DECLARE(pwrite); DECLARE(writev); DECLARE(pwritev);
DECLARE(fsync); DECLARE(fdatasync); DECLARE(ftruncate); DECLARE(renameat);
DECLARE(unlinkat); DECLARE(mkdirat);

__attribute__((constructor)) static void begin(void) {
    const char *where = getenv("RECORD_DIR"), *file = getenv("RECORD_LOG"), *text;
    if (!where || !file)
        return;
    snprintf(folder, sizeof folder, "%s", where);
    folder_bytes = strlen(folder);
    if ((text = getenv("RECORD_SLOW")))
        slow = atol(text);
    if ((text = getenv("RECORD_FAIL")))
        sscanf(text, "%255s %ld %ld %ld", fail_text, &fail_skip, &fail_count, &fail_done);
    log_fd = REAL(open)(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int is_inside(const char *path) {
    return log_fd >= 0 && !strncmp(path, folder, folder_bytes) && (path[folder_bytes] == '/' || !path[folder_bytes]);
}

/* The folder above, whose sync makes the folder's own name durable. */
static int is_above(const char *path) {
    size_t bytes = strrchr(folder, '/') - folder;
    return log_fd >= 0 && strlen(path) == bytes && !strncmp(path, folder, bytes);
}

static uint32_t put(struct record record, const struct iovec *parts, int count) {
    int before = errno;
    struct iovec all[64];
    record.bytes = 0;
    for (int i = 0; i < count; i++) {
        all[i + 1] = parts[i];
        record.bytes += parts[i].iov_len;
    }
    pthread_mutex_lock(&lock);
    if (record.phase == BEGIN)
        record.op = ++ops;
    all[0] = (struct iovec){&record, sizeof record};
    ssize_t done = REAL(writev)(log_fd, all, count + 1);
    pthread_mutex_unlock(&lock);
    if (done != (ssize_t)(sizeof record + record.bytes))
        abort();
    errno = before;
    return record.op;
}

static void put_paths(uint8_t type, uint8_t flags, uint64_t inode, const char *path, const char *other) {
    struct iovec parts[2] = {{(void *)path, strlen(path) + 1}, {(void *)other, other ? strlen(other) + 1 : 0}};
    put((struct record){.type = type, .flags = flags, .inode = inode}, parts, other ? 2 : 1);
}

/* The program's own record: tests/crash/images/subject.py calls it. */
void record_note(const char *text, uint32_t bytes) {
    struct iovec part = {(void *)text, bytes};
    if (log_fd >= 0)
        put((struct record){.type = NOTE}, &part, 1);
}

static int absolute(int at, const char *path, char *full) {
    char link[64], base[PATH_MAX];
    if (path[0] == '/')
        return snprintf(full, PATH_MAX, "%s", path) < PATH_MAX;
    snprintf(link, sizeof link, at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
    ssize_t size = readlink(link, base, sizeof base - 1);
    if (size < 0)
        return 0;
    base[size] = 0;
    return snprintf(full, PATH_MAX, "%s/%s", base, path) < PATH_MAX;
}

static struct known *of(int fd) { return log_fd >= 0 && fd >= 0 && fd < FDS && fds[fd].inode ? &fds[fd] : NULL; }

/* ---- names */

static int opened(int at, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX];
    struct stat status;
    int inside = log_fd >= 0 && absolute(at, path, full) && (is_inside(full) || is_above(full));
    int was_there = inside && !stat(full, &status);
    int fd = REAL(openat)(at, path, flags, mode);
    if (fd < 0 || !inside || fd >= FDS || fstat(fd, &status))
        return fd;
    int created = !was_there && (flags & O_CREAT);
    uint8_t kinds = (created ? CREATED : 0) | (S_ISDIR(status.st_mode) ? FOLDER : 0);
    char kind = strstr(full, "/journal-") ? 'j' : strstr(full, "/store-00/") ? 's' : 'o';
    fds[fd] = (struct known){status.st_ino, (flags & O_DSYNC) ? DSYNC : 0, kind};
    put_paths(OPEN, kinds, status.st_ino, full, NULL);
    if (was_there && (flags & O_TRUNC))
        put((struct record){.type = TRUNCATE, .inode = status.st_ino}, NULL, 0);
    return fd;
}

#define OPENER(name, head, at)                                                                                         \
    int name head {                                                                                                    \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                        \
        va_end(more);                                                                                                  \
        return opened(at, path, flags, mode);                                                                          \
    }
OPENER(open, (const char *path, int flags, ...), AT_FDCWD)
OPENER(open64, (const char *path, int flags, ...), AT_FDCWD)
OPENER(openat, (int at, const char *path, int flags, ...), at)
OPENER(openat64, (int at, const char *path, int flags, ...), at)

int close(int fd) {
    if (of(fd))
        fds[fd].inode = 0;
    return REAL(close)(fd);
}

int renameat(int from_at, const char *from, int to_at, const char *to) {
    char old[PATH_MAX], new[PATH_MAX];
    int inside = absolute(from_at, from, old) && absolute(to_at, to, new) && is_inside(old) && is_inside(new);
    int result = REAL(renameat)(from_at, from, to_at, to);
    if (!result && inside)
        put_paths(RENAME, 0, 0, old, new);
    return result;
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int at, const char *path, int flags) {
    char full[PATH_MAX];
    int inside = absolute(at, path, full) && is_inside(full);
    int result = REAL(unlinkat)(at, path, flags);
    if (!result && inside)
        put_paths(flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, 0, full, NULL);
    return result;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int at, const char *path, mode_t mode) {
    char full[PATH_MAX];
    struct stat status;
    int inside = absolute(at, path, full) && is_inside(full);
    int result = REAL(mkdirat)(at, path, mode);
    if (!result && inside && !stat(full, &status))
        put_paths(MKDIR, 0, status.st_ino, full, NULL);
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* ---- data */

static uint32_t began(struct known *file, off_t offset, const struct iovec *parts, int count) {
    return put((struct record){.type = WRITE, .flags = file->flags, .inode = file->inode, .offset = offset}, parts, count);
}

static ssize_t ended(struct known *file, uint32_t op, ssize_t done) {
    struct record record = {.type = WRITE, .phase = END, .flags = file->flags, .op = op, .inode = file->inode};
    record.failed = done < 0;
    record.offset = done < 0 ? 0 : done; /* the bytes that were written */
    put(record, NULL, 0);
    if (file->kind == 'j')
        __sync_fetch_and_add(&journal_writes, 1);
    return done;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    struct known *file = of(fd);
    if (!file)
        return REAL(pwritev)(fd, parts, count, offset);
    uint32_t op = began(file, offset, parts, count);
    return ended(file, op, REAL(pwritev)(fd, parts, count, offset));
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) { return pwritev(fd, parts, count, offset); }

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    struct known *file = of(fd);
    struct iovec part = {(void *)data, size};
    if (!file)
        return REAL(pwrite)(fd, data, size, offset);
    uint32_t op = began(file, offset, &part, 1);
    return ended(file, op, REAL(pwrite)(fd, data, size, offset));
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return pwrite(fd, data, size, offset); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    struct known *file = of(fd);
    if (!file)
        return REAL(writev)(fd, parts, count);
    uint32_t op = began(file, lseek(fd, 0, SEEK_CUR), parts, count);
    return ended(file, op, REAL(writev)(fd, parts, count));
}

ssize_t write(int fd, const void *data, size_t size) {
    struct known *file = of(fd);
    struct iovec part = {(void *)data, size};
    if (!file)
        return REAL(write)(fd, data, size);
    uint32_t op = began(file, lseek(fd, 0, SEEK_CUR), &part, 1);
    return ended(file, op, REAL(write)(fd, data, size));
}

int ftruncate(int fd, off_t size) {
    struct known *file = of(fd);
    int result = REAL(ftruncate)(fd, size);
    if (!result && file)
        put((struct record){.type = TRUNCATE, .inode = file->inode, .offset = size}, NULL, 0);
    return result;
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

/* Python copies files with it; it falls back to writes. */
ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    static ssize_t (*real)(int, int, off_t *, size_t);
    if (of(to)) {
        errno = ENOTSOCK;
        return -1;
    }
    if (!real)
        real = dlsym(RTLD_NEXT, "sendfile64");
    return real(to, from, offset, size);
}
ssize_t sendfile64(int to, int from, off_t *offset, size_t size) { return sendfile(to, from, offset, size); }

static int fails(int fd) {
    char link[64], path[PATH_MAX];
    if (!fail_text[0])
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    path[size < 0 ? 0 : size] = 0;
    if (!strstr(path, fail_text))
        return 0;
    pthread_mutex_lock(&lock);
    int result = fail_skip > 0 ? 0 : fail_count > 0;
    if (fail_skip > 0)
        fail_skip--;
    else if (fail_count > 0)
        fail_count--;
    pthread_mutex_unlock(&lock);
    return result;
}

static int synced(int fd, int (*real)(int)) {
    struct known *file = of(fd);
    if (!file)
        return real(fd);
    struct record record = {.type = SYNC, .inode = file->inode};
    record.op = put(record, NULL, 0);
    if (file->kind == 's' && slow) {
        long start = journal_writes, last = start;
        for (int idle_ms = 0; idle_ms < 20 && journal_writes - start < slow; idle_ms++) {
            usleep(1000);
            if (journal_writes != last)
                idle_ms = 0;
            last = journal_writes;
        }
    }
    int failed = fails(fd);
    int result = failed && !fail_done ? 0 : real(fd);
    record.phase = END;
    record.failed = failed || result;
    put(record, NULL, 0);
    if (failed) {
        errno = EIO;
        return -1;
    }
    return result;
}

int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }
