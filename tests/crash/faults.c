/* A disk that fails as a test wants it, preloaded: the rule is in a file that the test maps, FAULTS_FILE. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2 };
enum { NOT_DONE, DONE, SHORT, HANG };

struct rule { /* `test_disk_faults.RULE` */
    volatile int32_t calls, how, error, left; /* left: how often yet, -1 for good */
    volatile int32_t hits;
    volatile char text[108]; /* in the path */
};
static struct rule *rule;

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("FAULTS_FILE");
    int fd = file ? open(file, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, sizeof *rule, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    rule = mapped == MAP_FAILED ? NULL : mapped;
    close(fd);
}

/* How this call fails, -1 if it does not. */
static int fails(int fd, int call) {
    char name[64], path[PATH_MAX];
    if (!rule || !(rule->calls & call) || !rule->left)
        return -1;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(name, path, sizeof path - 1);
    if (size < 0)
        return -1;
    path[size] = 0;
    if (!strstr(path, (const char *)rule->text))
        return -1;
    if (rule->left > 0)
        __sync_fetch_and_sub(&rule->left, 1);
    __sync_fetch_and_add(&rule->hits, 1);
    while (rule->how == HANG)
        pause();
    return rule->how;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static ssize_t half(int fd, const struct iovec *parts, int count, off_t offset) {
    ssize_t size = parts[0].iov_len / 2;
    (void)count;
    return offset < 0 ? REAL(write)(fd, parts[0].iov_base, size) : REAL(pwrite)(fd, parts[0].iov_base, size, offset);
}

#define FAULTY(call, done, parts, count, offset) \
    int how = fails(fd, WRITE); \
    if (how < 0) \
        return REAL(call) done; \
    if (how == SHORT) \
        return half(fd, parts, count, offset); \
    if (how == DONE) \
        (void)!REAL(call) done; \
    errno = rule->error; \
    return -1;

ssize_t write(int fd, const void *data, size_t size) {
    struct iovec part = {(void *)data, size};
    FAULTY(write, (fd, data, size), &part, 1, -1)
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    struct iovec part = {(void *)data, size};
    FAULTY(pwrite, (fd, data, size, offset), &part, 1, offset)
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return pwrite(fd, data, size, offset); }

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    FAULTY(pwritev, (fd, parts, count, offset), parts, count, offset)
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) { return pwritev(fd, parts, count, offset); }

#define FAULTY_SYNC(call) \
    int call(int fd) { \
        int how = fails(fd, SYNC); \
        if (how < 0) \
            return REAL(call)(fd); \
        if (how == DONE) \
            REAL(call)(fd); \
        errno = rule->error; \
        return -1; \
    }

FAULTY_SYNC(fsync)
FAULTY_SYNC(fdatasync)
