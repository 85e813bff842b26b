/* Reading an archive from a FIFO into the folders of a new sandbox, before any command runs there.
 *
 * What pack.c writes comes parents first, so a member belongs to the directory that is open, or to one above it:
 * nothing is ever looked up by a path, but the first name of a hard link, and there links are not followed. An archive
 * in another order, with "..", or cut short, is damaged. A directory gets its mode and time when we leave it; one that
 * its owner may not enter gets its mode at the very end, since hard links may lead into it. */
#include "unpack.h"

#include "answer.h"
#include "bytes.h"
#include "member.h"
#include "user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct opened {
    size_t path_length;
    mode_t mode;
    struct timespec mtime;
};

struct closed {
    char *path;
    mode_t mode;
};

static struct roots roots;
static int here = -1; /* the open directory */
static char *here_path;
static size_t here_room;
static struct opened *opened;
static size_t depth, opened_room;
static struct closed *closed;
static size_t closed_count, closed_room;

/* ---- directories ---- */

static void give(int dir, const char *name, const struct tar_header *header) {
    unsigned user = (unsigned)octal(header->uid, 8), group = (unsigned)octal(header->gid, 8);
    if (geteuid()) return; /* only where the sandbox's own user may: elsewhere all is its own */
    require(!fchownat(dir, name, user, group, AT_SYMLINK_NOFOLLOW));
}

static void leave_directory(void) {
    struct opened *last = &opened[--depth];
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, last->mtime};
    int parent = depth ? openat(here, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    require(!depth || parent >= 0);
    if ((last->mode & 0300) == 0300) require(!fchmod(here, last->mode));
    else {
        closed = grown(closed, &closed_room, closed_count + 1, sizeof *closed);
        closed[closed_count++] = (struct closed){strdup(here_path), last->mode};
    }
    require(!futimens(here, times));
    close(here);
    here = parent;
    if (depth) here_path[opened[depth - 1].path_length] = 0;
}

static void enter_directory(int dir, const char *path, mode_t mode, struct timespec mtime) {
    size_t length = strlen(path);
    here_path = grown(here_path, &here_room, length + 1, 1);
    memcpy(here_path, path, length + 1);
    opened = grown(opened, &opened_room, depth + 1, sizeof *opened);
    opened[depth++] = (struct opened){length, mode, mtime};
    if (here >= 0) close(here);
    here = dir;
}

static int open_root(const char *label) {
    for (size_t i = 0; i < roots.count; i++)
        if (!strcmp(roots.all[i].label, label)) return open(roots.all[i].path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    damaged();
    return -1;
}

/* Opens the directory that holds `path`, from its root and without following links; returns the name in it. */
static const char *find(const char *path, int *parent) {
    char name[NAME_MAX + 1];
    int dir = -1;
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        if (slash == path || slash - path > NAME_MAX) damaged();
        snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
        if (!strcmp(name, "..") || !strcmp(name, ".")) damaged();
        int next = dir < 0 ? open_root(name) : openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0) damaged();
        if (dir >= 0) close(dir);
        dir = next;
    }
    *parent = dir;
    return path;
}

static void close_directories(void) {
    for (size_t i = 0; i < closed_count; i++) { /* inner ones were left before those that hold them */
        int parent;
        const char *name = find(closed[i].path, &parent);
        int dir = parent < 0 ? open_root(name) : openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        require(dir >= 0 && !fchmod(dir, closed[i].mode));
        close(dir);
        if (parent >= 0) close(parent);
    }
}

/* ---- members ---- */

static void read_segments(struct member *member, struct segment **segments, size_t *count) {
    char block[BLOCK], number[24];
    size_t used = BLOCK, length = 0, numbers = 0, wanted = 1, room = 0;
    while (numbers < wanted) {
        if (used == BLOCK) {
            if (member->size < BLOCK) damaged();
            take_all(block, BLOCK);
            member->size -= BLOCK;
            used = 0;
        }
        char c = block[used++];
        if (c != '\n') {
            if (c < '0' || c > '9' || length == sizeof number - 1) damaged();
            number[length++] = c;
            continue;
        }
        number[length] = 0;
        length = 0;
        long long value = read_number(number);
        if (numbers++ == 0) {
            if (value > 1 << 30) damaged();
            wanted = 1 + 2 * (*count = value);
            continue;
        }
        size_t index = (numbers - 2) / 2;
        *segments = grown(*segments, &room, index + 1, sizeof **segments);
        if (numbers % 2 == 0) (*segments)[index].start = value;
        else (*segments)[index].size = value;
    }
}

static void write_file(struct member *member, const char *name, const struct tar_header *header) {
    int fd = openat(here, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    require(fd >= 0);
    if (member->sparse) {
        struct segment *segments = NULL;
        size_t count = 0;
        read_segments(member, &segments, &count);
        long long left = member->size;
        require(!ftruncate(fd, member->real_size));
        for (size_t i = 0; i < count; i++) {
            if (segments[i].size > left || segments[i].size > member->real_size) damaged();
            if (segments[i].start > member->real_size - segments[i].size) damaged();
            take_to_file(fd, segments[i].start, segments[i].size);
            left -= segments[i].size;
        }
        if (left) damaged();
        free(segments);
    } else take_to_file(fd, 0, member->size);
    skip_padding(member->size);
    give(here, name, header);
    require(!fchmod(fd, octal(header->mode, 8) & 07777));
    close(fd);
}

static void link_file(const char *first, const char *name) {
    int parent;
    const char *old = find(first, &parent);
    if (parent < 0 || !strcmp(old, "..") || !strcmp(old, ".") || !*old) damaged();
    require(!linkat(parent, old, here, name, 0));
    close(parent);
}

static void make_member(struct member *member, const char *name, const struct tar_header *header) {
    mode_t mode = octal(header->mode, 8) & 07777;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, member->mtime};
    if (header->type == '5') {
        require(!mkdirat(here, name, 0700) || errno == EEXIST); /* such as a working directory that lies in the home */
        give(here, name, header);
        int dir = openat(here, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        require(dir >= 0);
        enter_directory(dir, member->path, mode, member->mtime);
        return;
    }
    if (header->type == '0') write_file(member, name, header);
    else if (header->type == '1' && member->link) link_file(member->link, name);
    else if (header->type == '2' && member->link) {
        require(!symlinkat(member->link, here, name));
        give(here, name, header);
    } else if (header->type == '6') {
        require(!mkfifoat(here, name, 0600));
        give(here, name, header);
        require(!fchmodat(here, name, mode, 0));
    } else damaged();
    if (header->type != '1') require(!utimensat(here, name, times, AT_SYMLINK_NOFOLLOW));
}

static void place_member(struct member *member, const struct tar_header *header) {
    char *slash = strrchr(member->path, '/');
    if (!slash) {
        if (header->type != '5') damaged();
        while (depth) leave_directory();
        int dir = open_root(member->path);
        require(dir >= 0);
        enter_directory(dir, member->path, octal(header->mode, 8) & 07777, member->mtime);
        return;
    }
    const char *name = slash + 1;
    if (!*name || !strcmp(name, ".") || !strcmp(name, "..")) damaged();
    size_t length = slash - member->path;
    while (depth && opened[depth - 1].path_length > length) leave_directory();
    if (!depth || opened[depth - 1].path_length != length || memcmp(here_path, member->path, length)) damaged();
    make_member(member, name, header);
}

void unpack(const struct header *request) {
    struct tar_header header;
    struct member member;
    read_roots(request, &roots);
    stream = openat(ENTRY, "stream", O_RDONLY | O_CLOEXEC);
    require(stream >= 0 && !become_archive_user());
    umask(0);
    for (; read_member(&member, &header); forget_member(&member)) place_member(&member, &header);
    while (depth) leave_directory();
    close_directories();
    answer("ok", position);
}
