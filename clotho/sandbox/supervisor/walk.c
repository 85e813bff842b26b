/* Walking a tree that a hostile user made: any depth, any names, nothing followed, nothing left open.
 * One directory is open at a time, and there is no recursion: neither descriptors nor stack run out. Way back up is
 * through "..", and is checked. Directories and files that their owner may not read are made readable meanwhile. */
#include "walk.h"

#include "bytes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct level {
    char **names;
    size_t count, next, path_length;
    dev_t device;
    ino_t inode;
    mode_t mode;
    int opened_up; /* its mode was changed, and is put back when we leave */
};

static struct level *levels;
static size_t depth, room;
static char *path;
static size_t path_room;

static void set_path(size_t at, const char *name) {
    size_t length = strlen(name);
    path = grown(path, &path_room, at + length + 2, 1);
    if (at) path[at++] = '/';
    memcpy(path + at, name, length + 1);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int read_names(int dir, struct level *level) {
    size_t room = 0;
    struct dirent *entry;
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    if (!stream) {
        if (copy >= 0) close(copy);
        return -1;
    }
    for (errno = 0; (entry = readdir(stream)); errno = 0) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        level->names = grown(level->names, &room, level->count + 1, sizeof *level->names);
        if (!(level->names[level->count++] = strdup(entry->d_name))) _exit(1);
    }
    int why = errno;
    closedir(stream);
    qsort(level->names, level->count, sizeof *level->names, by_name);
    errno = why;
    return why ? -1 : 0;
}

/* Returns the opened directory, whose level is the top one from now on, or -1. */
static int enter(int parent, const char *name, const struct stat *s) {
    struct level level = {.path_length = strlen(path), .device = s->st_dev, .inode = s->st_ino, .mode = s->st_mode & 07777};
    if (geteuid() != 0 && (s->st_mode & 0500) != 0500)
        level.opened_up = fchmodat(parent, name, level.mode | 0700, 0) == 0;
    int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir >= 0 && read_names(dir, &level) == 0) {
        levels = grown(levels, &room, depth + 1, sizeof *levels);
        levels[depth++] = level;
        return dir;
    }
    int why = errno;
    if (dir >= 0) close(dir);
    if (level.opened_up) fchmodat(parent, name, level.mode, 0);
    errno = why;
    return -1;
}

/* Returns the parent of `dir`, which is closed; -1 at the root, or where ".." is another directory by now. */
static int leave(int dir) {
    struct stat s;
    struct level *level = &levels[--depth];
    int parent = depth ? openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (level->opened_up) fchmod(dir, level->mode);
    close(dir);
    for (size_t i = level->next; i < level->count; i++) free(level->names[i]);
    free(level->names);
    if (parent < 0) return -1;
    if (!fstat(parent, &s) && s.st_ino == levels[depth - 1].inode && s.st_dev == levels[depth - 1].device) return parent;
    close(parent);
    return -1;
}

static int visit_next(int *dir, visitor *visit) {
    struct level *level = &levels[depth - 1];
    char *name = level->names[level->next++];
    struct node node = {.dir = *dir, .name = name};
    set_path(level->path_length, name);
    node.path = path;
    int failed = fstatat(*dir, name, &node.stat, AT_SYMLINK_NOFOLLOW) || visit(&node);
    if (!failed && S_ISDIR(node.stat.st_mode) && node.stat.st_dev == level->device) {
        int inner = enter(*dir, name, &node.stat);
        failed = inner < 0;
        if (!failed) {
            close(*dir);
            *dir = inner;
        }
    }
    free(name);
    return failed;
}

/* Calls `visit` for the directory at `root`, whose path is `label`, and all below it, parents first, in the order of
 * names. Returns 0, or -1 where a visit returned so or the tree can't be read; errno tells why. */
int walk(const char *root, const char *label, visitor *visit) {
    struct node node = {.dir = AT_FDCWD, .name = root, .path = label};
    set_path(0, label);
    if (stat(root, &node.stat) || visit(&node)) return -1;
    int dir = enter(AT_FDCWD, root, &node.stat), failed = dir < 0, why = errno;
    while (dir >= 0) {
        if (!failed && levels[depth - 1].next < levels[depth - 1].count) {
            failed = visit_next(&dir, visit);
            if (failed) why = errno;
            continue;
        }
        int more = depth > 1;
        dir = leave(dir);
        if (dir < 0 && more && !failed) {
            failed = 1;
            why = ESTALE;
        }
    }
    depth = 0;
    errno = why;
    return failed ? -1 : 0;
}

/* Opens a regular file of the sandbox's user, one that the user may not read too. */
int open_node(const struct node *node) {
    enum { FLAGS = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };
    int fd = openat(node->dir, node->name, FLAGS);
    if (fd >= 0 || errno != EACCES) return fd;
    if (fchmodat(node->dir, node->name, (node->stat.st_mode & 07777) | 0400, 0)) return -1;
    fd = openat(node->dir, node->name, FLAGS);
    int why = errno;
    fchmodat(node->dir, node->name, node->stat.st_mode & 07777, 0);
    errno = why;
    return fd;
}
