/* Reading or writing one file for the host.
 * A path is the agent's: it may lead through links anywhere, even to /proc/self of the one who opens it. So the
 * child first closes whatever could be reached that way, and kernel links of /proc are not followed. */
#include "file.h"

#include "answer.h"

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

static int real_path(int fd, char *real) {
    char descriptor[32];
    descriptor_path(fd, descriptor, sizeof descriptor);
    ssize_t n = readlink(descriptor, real, PATH_MAX - 1);
    real[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* `path` without "." and empty names, and with each ".." taking back a name; returns whether it had one. */
static int normalise(const char *path, char *plain) {
    size_t length = 0;
    int climbs = 0;
    for (const char *name = path; *name;) {
        size_t n = strcspn(name, "/");
        if (n == 2 && !strncmp(name, "..", 2)) {
            climbs = 1;
            while (length && plain[--length] != '/');
        } else if (n && !(n == 1 && *name == '.') && length + n + 2 < PATH_MAX) {
            plain[length++] = '/';
            memcpy(plain + length, name, n);
            length += n;
        }
        name += n + (name[n] == '/');
    }
    plain[length] = 0;
    return climbs;
}

static int is_under(const char *path, const char *root) {
    size_t n = strlen(root);
    return !strncmp(path, root, n) && (!path[n] || path[n] == '/');
}

/* Whether `plain`, and whether `real`, is in a folder that the request names as the agent's. */
static void place(const struct header *header, const char *plain, const char *real, int *asked, int *found) {
    char root[PATH_MAX], real_root[PATH_MAX];
    for (const char *line = header->text; *line; line = strchr(line, '\n') + 1) {
        if (strncmp(line, "agents ", 7)) continue;
        snprintf(root, sizeof root, "%.*s", (int)(strcspn(line, "\n") - 7), line + 7);
        int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0) continue;
        int known = real_path(fd, real_root);
        close(fd);
        *asked |= is_under(plain, root);
        *found |= known && is_under(real, real_root);
    }
}

/* A verifier asks for a path in the agent's folders, or by a path through them: the agent's links must not lead it to
 * what isn't the agent's, such as its own hidden files. A request that names no such folders may go anywhere. */
static void require_agents(const struct header *header, const char *path, int fd) {
    char plain[PATH_MAX], real[PATH_MAX];
    int asked = 0, found = 0;
    if (strncmp(header->text, "agents ", 7) && !strstr(header->text, "\nagents ")) return;
    int climbs = normalise(path, plain);
    if (!real_path(fd, real)) answer_errno();
    place(header, plain, real, &asked, &found);
    if (found || !strcmp(plain, real) || (!asked && !climbs)) return;
    answer("outside", 0);
}

void get(const struct header *header, const char *path, long long max) {
    char reopened[32];
    struct stat s;
    int found = open_path(path, O_PATH, RESOLVE_NO_MAGICLINKS);
    if (found < 0) answer_errno();
    require_agents(header, path, found);
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
static mode_t resolve_target(const struct header *header, char *path) {
    char real[PATH_MAX];
    struct stat s;
    int found = open_path(path, O_PATH, RESOLVE_NO_MAGICLINKS);
    if (found < 0 && (errno != ENOENT || lstat(path, &s) == 0)) {
        if (errno == ENOENT) answer("not_regular", 0); /* a link to nowhere */
        answer_errno();
    }
    if (found < 0) return 0644;
    require_agents(header, path, found);
    require_regular(found, &s);
    if (!real_path(found, real)) answer_errno();
    if (access(real, W_OK)) answer_errno();
    strcpy(path, real);
    return s.st_mode & 0777;
}

void put(const struct header *header, char *path, const char *key) {
    char unfinished[64], descriptor[32], real[PATH_MAX], *name;
    struct stat s;
    if (path[strlen(path) - 1] == '/') answer("is_directory", 0);
    mode_t mode = resolve_target(header, path);
    make_parents(path);
    int parent = open_parent(path, &name);
    if (parent < 0) answer_errno();
    require_agents(header, *path ? path : "/", parent);
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
    int told = dprintf(RESULT, "ok %lld\n%.*s/%s", (long long)s.st_size, n > 1 ? (int)n : 0, real, name);
    _exit(told < 0);
}
