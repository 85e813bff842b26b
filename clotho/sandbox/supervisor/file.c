/* Reading or writing one file for the host.
 * A path is the agent's: it may lead through links anywhere, even to /proc/self of the one who opens it. So the
 * child first closes whatever could be reached that way, and kernel links of /proc are not followed. */
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int open_path(const char *path, int flags, unsigned long long resolve) {
    struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve};
    int fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    return fd < 0 && errno == ENOSYS ? open(path, flags | O_CLOEXEC) : fd;
}

static void require_regular(int fd, struct stat *s) {
    struct statfs fs;
    if (fstat(fd, s) || fstatfs(fd, &fs)) answer_errno();
    if (S_ISDIR(s->st_mode)) answer("is_directory", 0);
    if (!S_ISREG(s->st_mode) || fs.f_type == PROC_SUPER_MAGIC) answer("not_regular", 0);
}

static long long copy(int from, int to, long long max) {
    char bytes[65536];
    long long size = 0;
    ssize_t n;
    while ((n = read(from, bytes, sizeof bytes)) > 0) {
        size += n;
        if (size > max) answer("too_large", size);
        for (ssize_t done = 0, w; done < n; done += w)
            if ((w = write(to, bytes + done, n - done)) < 0) return -1;
    }
    return n < 0 ? -1 : size;
}

static void descriptor_path(int fd, char *path, size_t size) { snprintf(path, size, "/proc/self/fd/%d", fd); }

void get(const char *path, long long max) {
    char reopened[32];
    struct stat s;
    int found = open_path(path, O_PATH, RESOLVE_NO_MAGICLINKS);
    if (found < 0) answer_errno();
    require_regular(found, &s);
    if (s.st_size > max) answer("too_large", s.st_size);
    descriptor_path(found, reopened, sizeof reopened);
    int from = open(reopened, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    long long size = from < 0 ? -1 : copy(from, CONTENT, max);
    if (size < 0) answer_errno();
    answer("ok", size);
}

/* Splits an absolute path into a directory that is opened and the name in it. */
static int open_parent(char *path, char **name) {
    char *slash = strrchr(path, '/');
    *slash = 0;
    *name = slash + 1;
    return open_path(*path ? path : "/", O_PATH | O_DIRECTORY, RESOLVE_NO_MAGICLINKS);
}

static void make_parents(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(path, 0777) && errno != EEXIST && errno != EROFS && errno != EACCES) answer_errno();
        *slash = '/';
    }
}

/* Where `path` really is: a link is written through, not replaced. Returns the mode that the file shall have. */
static mode_t resolve_target(char *path) {
    char descriptor[32], real[PATH_MAX];
    struct stat s;
    int found = open_path(path, O_PATH, RESOLVE_NO_MAGICLINKS);
    if (found < 0 && (errno != ENOENT || lstat(path, &s) == 0)) {
        if (errno == ENOENT) answer("not_regular", 0); /* a link to nowhere */
        answer_errno();
    }
    if (found < 0) return 0644;
    require_regular(found, &s);
    descriptor_path(found, descriptor, sizeof descriptor);
    ssize_t n = readlink(descriptor, real, sizeof real - 1);
    if (n <= 0) answer_errno();
    real[n] = 0;
    if (access(real, W_OK)) answer_errno();
    strcpy(path, real);
    return s.st_mode & 0777;
}

void put(char *path, const char *key) {
    char unfinished[64], descriptor[32], real[PATH_MAX], *name;
    struct stat s;
    if (path[strlen(path) - 1] == '/') answer("is_directory", 0);
    mode_t mode = resolve_target(path);
    make_parents(path);
    int parent = open_parent(path, &name);
    if (parent < 0) answer_errno();
    snprintf(unfinished, sizeof unfinished, ".%.16s.writing", key);
    int to = openat(parent, unfinished, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (to < 0) answer_errno();
    if (copy(CONTENT, to, LLONG_MAX) < 0 || fchmod(to, mode) || fstat(to, &s)
        || renameat(parent, unfinished, parent, name)) {
        int why = errno;
        unlinkat(parent, unfinished, 0);
        errno = why;
        answer_errno();
    }
    descriptor_path(parent, descriptor, sizeof descriptor);
    ssize_t n = readlink(descriptor, real, sizeof real);
    dprintf(RESULT, "ok %lld\n%.*s/%s", (long long)s.st_size, n > 1 ? (int)n : 0, real, name);
    _exit(0);
}
