/* Reading and writing files for the host: in a child, with the sandbox's rights, in the sandbox's view.
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

struct transfer {
    struct transfer *next;
    char key[KEY_LENGTH + 1];
    pid_t child;
    int dir;
};
static struct transfer *transfers;

enum { CONTENT = 3, RESULT = 4 };

static void answer(const char *error, long long size) {
    dprintf(RESULT, "%s %lld\n", error, size);
    _exit(0);
}

static void answer_errno(void) {
    switch (errno) {
    case ENOENT:
    case ENOTDIR: answer("not_found", 0);
    case EACCES:
    case EPERM:
    case EROFS: answer("permission_denied", 0);
    case ENOSPC:
    case EDQUOT: answer("no_space", 0);
    case EISDIR: answer("is_directory", 0);
    case ELOOP: answer("not_regular", 0);
    }
    dprintf(RESULT, "failed %d\n", errno);
    _exit(0);
}

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

static void get(const char *path, long long max) {
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

static void put(char *path, const char *key) {
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

static void start_in(const char *after) {
    char left[PATH_MAX];
    directory_left_by(after, left);
    if (*left && chdir(left)) return; /* gone: paths start in the workspace then, as commands do */
}

static void become_transfer(struct transfer *transfer) {
    struct header header;
    char verb[8], after[KEY_LENGTH + 1], path[2 * PATH_MAX], given[PATH_MAX];
    int request = read_header(transfer->dir, "request", &header);
    if (request < 0) _exit(1);
    header_value(&header, "verb", verb, sizeof verb);
    header_value(&header, "after", after, sizeof after);
    ssize_t n = read(request, given, sizeof given - 1);
    given[n > 0 ? n : 0] = 0;
    start_in(after);
    int getting = !strcmp(verb, "get");
    int content = openat(transfer->dir, "content", getting ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY, 0600);
    int result = openat(transfer->dir, ".done", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (content < 0 || result < 0) _exit(1);
    content = fcntl(content, F_DUPFD, 100);
    result = fcntl(result, F_DUPFD, 100);
    dup2(content, CONTENT);
    dup2(result, RESULT);
    for (int fd = 0; fd < 3; fd++) close(fd);
    close_from(RESULT + 1);
    for (int fd = 0; fd < 3; fd++) open("/dev/null", O_RDWR);
    umask(022);
    signal(SIGPIPE, SIG_DFL);
    char here[PATH_MAX] = "";
    if (*given != '/' && !getcwd(here, sizeof here)) answer_errno();
    snprintf(path, sizeof path, "%s/%s", strcmp(here, "/") ? here : "", *given == '/' ? given + 1 : given);
    if (!*given) answer("not_found", 0);
    if (getting) get(path, header_number(&header, "max", LLONG_MAX));
    put(path, transfer->key);
}

void start_transfer(const char *key) {
    for (struct transfer *t = transfers; t; t = t->next)
        if (!strcmp(t->key, key)) return;
    struct transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer) return;
    strcpy(transfer->key, key);
    transfer->dir = open_entry("f", key);
    transfer->child = transfer->dir < 0 || faccessat(transfer->dir, "done", F_OK, 0) == 0 ? -1 : fork();
    if (transfer->child == 0) become_transfer(transfer);
    if (transfer->child < 0) {
        if (transfer->dir >= 0) close(transfer->dir);
        free(transfer);
        return;
    }
    transfer->next = transfers;
    transfers = transfer;
}

/* Whether `child` was a transfer. One that was killed from inside has no answer: the host asks again. */
int end_transfer(pid_t child, int status) {
    for (struct transfer **at = &transfers; *at; at = &(*at)->next) {
        struct transfer *transfer = *at;
        if (transfer->child != child) continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) linkat(transfer->dir, ".done", transfer->dir, "done", 0);
        else publish_once(transfer->dir, "done", "interrupted 0\n");
        close(transfer->dir);
        *at = transfer->next;
        free(transfer);
        return 1;
    }
    return 0;
}

int is_transfer(pid_t pid) {
    for (struct transfer *t = transfers; t; t = t->next)
        if (t->child == pid) return 1;
    return 0;
}
