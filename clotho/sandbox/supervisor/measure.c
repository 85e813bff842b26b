/* A first pass over what is archived says how large the archive will be, and a fingerprint of what it would hold.
 * Change times have the clock's grain: an archive ends no sooner than that after the youngest, so that whatever changes
 * later has another one. */
#include "measure.h"

#include "answer.h"
#include "tar.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GRAIN_NS = 12000000, HEADERS = 3 * BLOCK };
struct measured measured;

int measure(const struct node *node) {
    const struct stat *s = &node->stat;
    struct {
        uint64_t mode, user, group, size, inode, links;
        int64_t changed, changed_ns;
    } seen = {.mode = s->st_mode, .user = s->st_uid, .group = s->st_gid};
    measured.size += HEADERS + strlen(node->path) / BLOCK * BLOCK;
    if (S_ISREG(s->st_mode)) {
        off_t allocated = s->st_blocks * (off_t)BLOCK;
        measured.size += ((s->st_size < allocated ? s->st_size : allocated) + BLOCK - 1) / BLOCK * BLOCK;
    } else if (S_ISSOCK(s->st_mode) || S_ISCHR(s->st_mode) || S_ISBLK(s->st_mode))
        measured.left_out++;
    if (!S_ISDIR(s->st_mode)) { /* of a directory, the names in it are seen, and its times don't count */
        seen.size = s->st_size;
        seen.inode = s->st_ino;
        seen.links = s->st_nlink;
        seen.changed = s->st_ctim.tv_sec;
        seen.changed_ns = s->st_ctim.tv_nsec;
        if (s->st_ctim.tv_sec > measured.youngest.tv_sec
            || (s->st_ctim.tv_sec == measured.youngest.tv_sec && s->st_ctim.tv_nsec > measured.youngest.tv_nsec))
            measured.youngest = s->st_ctim;
    }
    sha256_add(&measured.fingerprint, node->path, strlen(node->path) + 1);
    sha256_add(&measured.fingerprint, &seen, sizeof seen);
    return told_to_stop ? -1 : 0;
}

void outlast_grain(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    long long age = (time.tv_sec - measured.youngest.tv_sec) * 1000000000LL + time.tv_nsec - measured.youngest.tv_nsec;
    if (age < GRAIN_NS) usleep((age < 0 ? GRAIN_NS : GRAIN_NS - age) / 1000 + 1);
}

enum { VOLATILE = 3, DEEPEST = 16 };
static const char *const VOLATILE_FOLDERS[VOLATILE] = {"/dev/shm", "/var/tmp", "/run"};
static uint64_t at_first[VOLATILE];

static uint64_t hashed(uint64_t hash, const void *bytes, size_t size) {
    for (const unsigned char *byte = bytes; size--; byte++) hash = (hash ^ *byte) * 0x100000001b3;
    return hash;
}

/* A sum over what is in a folder, in whatever order; 0 for an empty one. Of a directory only what is in it counts, and
 * the sum is the same for whoever asks: what not everybody may read counts by its time alone. */
static uint64_t contents_of(int parent, const char *path, int depth) {
    uint64_t sum = 0;
    struct dirent *entry;
    int fd = openat(parent, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0) close(fd);
    while (dir && (entry = readdir(dir))) {
        struct stat s;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        uint64_t hash = hashed(0xcbf29ce484222325, entry->d_name, strlen(entry->d_name));
        if (!fstatat(fd, entry->d_name, &s, AT_SYMLINK_NOFOLLOW)) {
            int open = S_ISDIR(s.st_mode) && (s.st_mode & 05) == 05 && depth < DEEPEST;
            uint64_t inside = open ? contents_of(fd, entry->d_name, depth + 1) : 0;
            hash = open ? hashed(hash, &inside, sizeof inside) : hashed(hash, &s.st_ctim, sizeof s.st_ctim);
        }
        sum += hash;
    }
    if (dir) closedir(dir);
    return sum;
}

/* What an engine or an image puts there, another sandbox begins with, too. */
void note_outside(void) {
    for (int i = 0; i < VOLATILE; i++) at_first[i] = contents_of(AT_FDCWD, VOLATILE_FOLDERS[i], 0);
}

static int lines_of(const char *path) {
    char text[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC), lines = 0;
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text);
    if (fd >= 0) close(fd);
    for (ssize_t i = 0; i < n; i++) lines += text[i] == '\n';
    return lines;
}

/* What a command can leave where no archive looks: in memory, and as System V's objects. */
int left_outside(void) {
    static const char *const OBJECTS[] = {"/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg"};
    int found = 0;
    for (int i = 0; i < VOLATILE; i++) found += contents_of(AT_FDCWD, VOLATILE_FOLDERS[i], 0) != at_first[i];
    for (int i = 0; i < 3; i++) found += lines_of(OBJECTS[i]) > 1;
    return found;
}
