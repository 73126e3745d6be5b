/* Fail or kill the process at its n-th operation on files below a folder (LD_PRELOAD).

   fault_arm(folder, kind, nth, error, counts): the nth operation of this kind fails with `error`;
   0 sends SIGKILL before it, in the middle of a write. A full disk (ENOSPC) stays full. `counts`
   has the operations of each kind, and behind them how often a fault struck. fsync only counts:
   a kill does not lose what the kernel has. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE, SYNC, RENAME, UNLINK, OPEN, MKDIR, TRUNCATE, LINK, KINDS };

static char root[4096];
static size_t root_length;
static int armed_kind, armed_error;
static long armed_nth;
static long *counts;

void fault_arm(const char *folder, int kind, long nth, int error, long *shared)
{
    root_length = strlen(strcpy(root, folder));
    armed_kind = kind, armed_nth = nth, armed_error = error, counts = shared;
}

static int below(const char *path)
{
    return root_length && strncmp(path, root, root_length) == 0 && path[root_length] == '/';
}

static int strikes(int kind, const char *path)
{
    if (!below(path))
        return 0;
    long n = ++counts[kind];
    if (kind != armed_kind || n < armed_nth || (n > armed_nth && armed_error != ENOSPC))
        return 0;
    counts[KINDS]++;
    if (!armed_error && kind != WRITE)
        kill(getpid(), SIGKILL);
    errno = armed_error;
    return 1;
}

static int at(int kind, int folder, const char *path)
{
    char full[8192] = "", link[64];
    if (path[0] != '/') {
        if (folder == AT_FDCWD) {
            if (!getcwd(full, 4096))
                return 0;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            full[readlink(link, full, 4095) > 0 ? strlen(full) : 0] = 0;
        }
        strcat(full, "/");
    }
    strncat(full, path, 4000);
    return root_length && strikes(kind, full);
}

static int by_descriptor(int kind, int file)
{
    char path[4096], link[64];
    if (!root_length)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0)
        return 0;
    path[n] = 0;
    return strikes(kind, path);
}

#define REAL(result, name, ...) ((result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

static ssize_t half(int file, const void *data, size_t n)
{
    int error = errno;
    ssize_t written = n > 1 ? REAL(ssize_t, write, int, const void *, size_t)(file, data, n / 2) : -1;
    if (!error)
        kill(getpid(), SIGKILL);
    errno = error;
    return error == ENOSPC && counts[KINDS] == 1 ? written : -1; /* as a disk that fills up */
}

ssize_t write(int file, const void *data, size_t n)
{
    if (by_descriptor(WRITE, file))
        return half(file, data, n);
    return REAL(ssize_t, write, int, const void *, size_t)(file, data, n);
}

ssize_t writev(int file, const struct iovec *parts, int n)
{
    if (by_descriptor(WRITE, file))
        return half(file, parts[0].iov_base, parts[0].iov_len);
    return REAL(ssize_t, writev, int, const struct iovec *, int)(file, parts, n);
}

ssize_t pwrite64(int file, const void *data, size_t n, off64_t offset)
{
    if (by_descriptor(WRITE, file))
        return half(file, data, n);
    return REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t)(file, data, n, offset);
}

#define SYNCING(name)                                                                             \
    int name(int file)                                                                            \
    {                                                                                             \
        if (!root_length)                                                                         \
            return REAL(int, name, int)(file);                                                    \
        return by_descriptor(SYNC, file) ? -1 : 0;                                                \
    }
SYNCING(fsync)
SYNCING(fdatasync)

#define OPENING(name)                                                                             \
    int name(const char *path, int flags, ...)                                                    \
    {                                                                                             \
        va_list rest;                                                                             \
        va_start(rest, flags);                                                                    \
        mode_t mode = va_arg(rest, mode_t);                                                       \
        va_end(rest);                                                                             \
        if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) && at(OPEN, AT_FDCWD, path))                  \
            return -1;                                                                            \
        return REAL(int, name, const char *, int, mode_t)(path, flags, mode);                     \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name)                                                                          \
    int name(int folder, const char *path, int flags, ...)                                        \
    {                                                                                             \
        va_list rest;                                                                             \
        va_start(rest, flags);                                                                    \
        mode_t mode = va_arg(rest, mode_t);                                                       \
        va_end(rest);                                                                             \
        if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) && at(OPEN, folder, path))                    \
            return -1;                                                                            \
        return REAL(int, name, int, const char *, int, mode_t)(folder, path, flags, mode);        \
    }
OPENING_AT(openat)
OPENING_AT(openat64)

int rename(const char *from, const char *to)
{
    if (at(RENAME, AT_FDCWD, from))
        return -1;
    return REAL(int, rename, const char *, const char *)(from, to);
}

int renameat(int a, const char *from, int b, const char *to)
{
    if (at(RENAME, a, from))
        return -1;
    return REAL(int, renameat, int, const char *, int, const char *)(a, from, b, to);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (at(RENAME, a, from))
        return -1;
    return REAL(int, renameat2, int, const char *, int, const char *, unsigned)(a, from, b, to, flags);
}

int unlink(const char *path)
{
    return at(UNLINK, AT_FDCWD, path) ? -1 : REAL(int, unlink, const char *)(path);
}

int rmdir(const char *path)
{
    return at(UNLINK, AT_FDCWD, path) ? -1 : REAL(int, rmdir, const char *)(path);
}

int unlinkat(int folder, const char *path, int flags)
{
    return at(UNLINK, folder, path) ? -1 : REAL(int, unlinkat, int, const char *, int)(folder, path, flags);
}

int mkdir(const char *path, mode_t mode)
{
    return at(MKDIR, AT_FDCWD, path) ? -1 : REAL(int, mkdir, const char *, mode_t)(path, mode);
}

int mkdirat(int folder, const char *path, mode_t mode)
{
    return at(MKDIR, folder, path) ? -1 : REAL(int, mkdirat, int, const char *, mode_t)(folder, path, mode);
}

int symlink(const char *to, const char *path)
{
    return at(LINK, AT_FDCWD, path) ? -1 : REAL(int, symlink, const char *, const char *)(to, path);
}

int link(const char *from, const char *path)
{
    return at(LINK, AT_FDCWD, path) ? -1 : REAL(int, link, const char *, const char *)(from, path);
}

int linkat(int a, const char *from, int b, const char *path, int flags)
{
    if (at(LINK, b, path))
        return -1;
    return REAL(int, linkat, int, const char *, int, const char *, int)(a, from, b, path, flags);
}

#define TRUNCATING(name, offset)                                                                  \
    int name(int file, offset n)                                                                  \
    {                                                                                             \
        return by_descriptor(TRUNCATE, file) ? -1 : REAL(int, name, int, offset)(file, n);        \
    }
TRUNCATING(ftruncate, off_t)
TRUNCATING(ftruncate64, off64_t)
