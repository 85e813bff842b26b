/* What a relay does with files: of the control directory, by their path in it, and the few that a sandbox begins with.
 * Nothing is followed, nothing is waited for, and what is made is the supervisor's. */
#include "relay_files.h"

#include "control.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { OPEN = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK };

static void put_number(unsigned char *to, uint64_t number) {
    for (int i = 7; i >= 0; i--, number >>= 8) to[i] = number & 0xff;
}

static int give(int fd) {
    struct stat s;
    return fstat(control, &s) || fchown(fd, s.st_uid, s.st_gid) ? -1 : 0;
}

static int give_name(int dir, const char *name) {
    struct stat s;
    return fstat(control, &s) || fchownat(dir, name, s.st_uid, s.st_gid, AT_SYMLINK_NOFOLLOW) ? -1 : 0;
}

/* A lock that is held is a supervisor that lives. Returns the length of its instance's name, 0 without one. */
int is_alive(char text[64]) {
    int fd = openat(control, "alive", O_RDONLY | OPEN);
    ssize_t n = 0;
    if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK) n = read(fd, text, 63);
    if (fd >= 0) close(fd);
    return n > 0 ? (int)n : 0;
}

static int write_file(struct request *request, const char *path, int fresh) {
    int fd = openat(control, path, O_WRONLY | OPEN | (fresh ? O_CREAT | O_EXCL : O_APPEND), 0640);
    if (fd < 0) return -1;
    int failed = fresh && give(fd);
    while (!failed && request->at < request->end) {
        ssize_t n = write(fd, request->at, request->end - request->at);
        if (n <= 0) failed = 1;
        else request->at += n;
    }
    int why = errno;
    close(fd);
    errno = why;
    return failed ? -1 : 0;
}

/* Of a regular file. */
ssize_t start_of(const char *path, void *to, size_t room) {
    struct stat s;
    int fd = openat(control, path, O_RDONLY | OPEN);
    ssize_t n = -1;
    if (fd >= 0 && !fstat(fd, &s)) {
        if (S_ISREG(s.st_mode)) n = pread(fd, to, room, 0);
        else errno = ENXIO;
    }
    int why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    return n;
}

static void read_file(struct request *request, const char *path) {
    static char content[MOST_DATA];
    uint64_t offset = take_number(request, 8), limit = take_number(request, 4);
    struct stat s;
    int fd = openat(control, path, O_RDONLY | OPEN);
    ssize_t n = -1;
    if (fd >= 0 && !fstat(fd, &s)) {
        if (!S_ISREG(s.st_mode)) errno = ENXIO;
        else n = pread(fd, content, limit < sizeof content ? limit : sizeof content, (off_t)offset);
    }
    reply(request->number, n < 0 ? errno : 0, content, n < 0 ? 0 : n);
    if (fd >= 0) close(fd);
}

static void list(struct request *request, const char *path) {
    static char names[MOST_DATA];
    size_t used = 0;
    struct dirent *entry;
    int fd = openat(control, path, O_RDONLY | O_DIRECTORY | OPEN);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    int why = stream ? 0 : errno;
    while (stream && !why && (entry = readdir(stream))) {
        size_t length = strlen(entry->d_name) + 1;
        if (*entry->d_name == '.') continue;
        if (used + length > sizeof names) why = E2BIG;
        else memcpy(names + used, entry->d_name, length);
        used += length;
    }
    if (stream) closedir(stream);
    reply(request->number, why, names, why ? 0 : used);
}

static void tell(struct request *request, const char *path) {
    struct stat s;
    unsigned char found[16];
    if (fstatat(control, path, &s, AT_SYMLINK_NOFOLLOW)) {
        reply(request->number, errno, NULL, 0);
        return;
    }
    put_number(found, s.st_size);
    put_number(found + 8, s.st_mtim.tv_sec * 1000000000ULL + s.st_mtim.tv_nsec);
    reply(request->number, 0, found, sizeof found);
}

static int touch(const char *path, uint64_t time) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {time / 1000000000, time % 1000000000}};
    if (!time) times[1].tv_nsec = UTIME_NOW;
    int fd = openat(control, path, O_WRONLY | O_CREAT | OPEN, 0640);
    if (fd < 0) return -1;
    int failed = give(fd) || futimens(fd, times);
    close(fd);
    return failed ? -1 : 0;
}

/* Deeper ones are reached by their parents' descriptors: no path is too long. */
static int empty(int fd) {
    struct dirent *entry;
    DIR *stream = fdopendir(fd);
    int failed = !stream;
    while (stream && (entry = readdir(stream))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (!unlinkat(dirfd(stream), entry->d_name, 0)) continue;
        int inner = openat(dirfd(stream), entry->d_name, O_RDONLY | O_DIRECTORY | OPEN);
        if (inner < 0 || empty(inner) || unlinkat(dirfd(stream), entry->d_name, AT_REMOVEDIR)) failed = 1;
    }
    if (stream) closedir(stream);
    return failed ? -1 : 0;
}

static int remove_all(const char *path) {
    if (!unlinkat(control, path, 0) || errno == ENOENT) return 0;
    int fd = openat(control, path, O_RDONLY | O_DIRECTORY | OPEN);
    return fd < 0 || empty(fd) || unlinkat(control, path, AT_REMOVEDIR) ? -1 : 0;
}

static int say(const char *text) {
    char line[MOST_PATH + 1];
    int length = snprintf(line, sizeof line, "%s\n", text), fd = openat(control, "q", O_WRONLY | OPEN);
    if (fd < 0) return -1;
    int failed = write(fd, line, length) != length, why = errno;
    close(fd);
    errno = why;
    return failed ? -1 : 0;
}

int make_path(const char *path) {
    char parent[MOST_PATH];
    snprintf(parent, sizeof parent, "%s/", path);
    for (char *slash = strchr(parent + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(parent, 0755) && errno != EEXIST) return -1;
        *slash = '/';
    }
    return 0;
}

/* A folder of the sandbox's own, emptied of what the image has there where that is asked for. */
static int make_folder(const char *path, mode_t mode, int cleared) {
    struct stat s;
    if (make_path(path)) return -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed = fd < 0;
    if (!failed && cleared) {
        int inner = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        failed = inner < 0 || empty(inner);
    }
    if (!failed) failed = fstat(control, &s) || fchown(fd, s.st_gid, s.st_gid) || fchmod(fd, mode);
    int why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    return failed ? -1 : 0;
}

static int make_parent(const char *path) {
    char parent[MOST_PATH];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return 0;
    snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
    return make_path(parent);
}

/* In the place of a folder that the image has there, which a mount would hide. */
static int link_folder(const char *target, const char *path) {
    char found[MOST_PATH];
    if (make_parent(path)) return -1;
    if (!symlink(target, path)) return 0;
    if (errno != EEXIST) return -1;
    ssize_t n = readlink(path, found, sizeof found - 1);
    if (n >= 0) {
        found[n] = 0;
        if (!strcmp(found, target)) return 0;
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | OPEN);
    return fd < 0 || empty(fd) || rmdir(path) ? -1 : symlink(target, path);
}

static void tell_room(struct request *request) {
    struct statvfs s;
    unsigned char found[16];
    if (fstatvfs(control, &s)) {
        reply(request->number, errno, NULL, 0);
        return;
    }
    put_number(found, (uint64_t)s.f_bavail * s.f_frsize);
    put_number(found + 8, (uint64_t)s.f_blocks * s.f_frsize);
    reply(request->number, 0, found, sizeof found);
}

/* Returns 0 for what is none of these. */
int serve_file(int verb, struct request *request) {
    char path[MOST_PATH], other[MOST_PATH], text[64];
    uint64_t number = request->number;
    if (strchr("MFWRLXGNSTC", verb)) take_entry(request, path);
    else if (strchr("YOI", verb)) take_path(request, path);
    if (strchr("RL", verb)) take_entry(request, other);
    if (verb == 'I') take_path(request, other);
    uint64_t argument = strchr("WTO", verb) ? take_number(request, 8) : 0;
    if (request->damaged) reply(number, EINVAL, NULL, 0);
    else if (verb == 'M') reply_done(number, mkdirat(control, path, 0700) || give_name(control, path));
    else if (verb == 'F') reply_done(number, mkfifoat(control, path, 0600) || give_name(control, path));
    else if (verb == 'W') reply_done(number, write_file(request, path, argument != 0));
    else if (verb == 'R') reply_done(number, renameat(control, path, control, other));
    else if (verb == 'L') reply_done(number, linkat(control, path, control, other, 0));
    else if (verb == 'X') reply_done(number, remove_all(path));
    else if (verb == 'G') read_file(request, path);
    else if (verb == 'N') list(request, path);
    else if (verb == 'S') tell(request, path);
    else if (verb == 'T') reply_done(number, touch(path, argument));
    else if (verb == 'C') reply_done(number, fchmodat(control, path, 0640, 0));
    else if (verb == 'Y') reply_done(number, say(path));
    else if (verb == 'A') reply(number, 0, text, is_alive(text));
    else if (verb == 'Z') tell_room(request);
    else if (verb == 'O') reply_done(number, make_folder(path, argument & 07777, argument >> 16 & 1));
    else if (verb == 'I') reply_done(number, link_folder(path, other));
    else return 0;
    return 1;
}
