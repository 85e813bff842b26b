/* A list of the files in the workspace: mode, size, SHA-256 of the content, path, and a NUL, for each; and its digest.
 * Names are a command's: of a list that is too long for the host its beginning is kept, and the digest of all of it.
 * Digests are remembered across requests, in memory that the children share: a file whose change time is older than the
 * clock's grain was when we read it has not changed since. There is one child at a time. */
#include "manifest.h"

#include "answer.h"
#include "bytes.h"
#include "sha256.h"
#include "tar.h"
#include "walk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { REMEMBERED = 1 << 15, GRAIN_NS = 12000000, MOST_LISTED = 16 << 20 };

struct remembered {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
    unsigned char digest[DIGEST];
};
static struct remembered *memory;
static FILE *list;
static struct sha256 of_all;
static long long listed;
static int is_cut;

void open_manifest_memory(void) {
    memory = mmap(NULL, REMEMBERED * sizeof *memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) memory = NULL;
}

static int hash_file(const struct node *node, unsigned char digest[DIGEST]) {
    static char bytes[1 << 16];
    struct sha256 hash;
    ssize_t n;
    int fd = open_node(node);
    if (fd < 0) return -1;
    sha256_begin(&hash);
    while ((n = read(fd, bytes, sizeof bytes)) > 0 && !told_to_stop) sha256_add(&hash, bytes, n);
    close(fd);
    sha256_end(&hash, digest);
    return n;
}

static int is_settled(const struct stat *s) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (time.tv_sec - s->st_ctim.tv_sec) * 1000000000LL + time.tv_nsec - s->st_ctim.tv_nsec > GRAIN_NS;
}

static int digest_of(const struct node *node, unsigned char digest[DIGEST]) {
    const struct stat *s = &node->stat;
    struct remembered *slot = memory ? &memory[s->st_ino % REMEMBERED] : NULL;
    struct remembered wanted = {.device = s->st_dev, .inode = s->st_ino, .size = s->st_size, .changed = s->st_ctim};
    if (slot && slot->inode == wanted.inode && slot->device == wanted.device && slot->size == wanted.size
        && slot->changed.tv_sec == wanted.changed.tv_sec && slot->changed.tv_nsec == wanted.changed.tv_nsec) {
        memcpy(digest, slot->digest, DIGEST);
        return 0;
    }
    int settled = is_settled(s);
    if (hash_file(node, digest)) return -1;
    if (!slot || !settled) return 0;
    slot->inode = 0; /* killed in the middle, we leave nothing that could be taken for whole */
    __sync_synchronize();
    memcpy(slot->digest, digest, DIGEST);
    slot->device = wanted.device;
    slot->size = wanted.size;
    slot->changed = wanted.changed;
    __sync_synchronize();
    slot->inode = wanted.inode;
    return 0;
}

/* Adds an entry to the digest, and to the list while there is room: what is listed are the first entries, whole. */
static int add_entry(const char *head, const char *path) {
    size_t length = strlen(head), rest = strlen(path) + 1;
    sha256_add(&of_all, head, length);
    sha256_add(&of_all, path, rest);
    if (is_cut || listed + length + rest > MOST_LISTED) {
        is_cut = 1;
        return 0;
    }
    listed += length + rest;
    return fwrite(head, 1, length, list) == length && fwrite(path, 1, rest, list) == rest ? 0 : -1;
}

static int describe(const struct node *node) {
    const struct stat *s = &node->stat;
    unsigned char digest[DIGEST];
    char text[2 * DIGEST + 1] = "-", target[PATH_MAX], head[2 * DIGEST + 64];
    long long size = 0;
    if (told_to_stop) return -1;
    if (!strchr(node->path, '/')) return 0; /* the workspace itself */
    if (S_ISREG(s->st_mode)) {
        if (digest_of(node, digest)) return -1;
        hexadecimal(digest, DIGEST, text);
        size = s->st_size;
    } else if (S_ISLNK(s->st_mode)) {
        struct sha256 hash;
        ssize_t n = readlinkat(node->dir, node->name, target, sizeof target);
        if (n < 0) return -1;
        sha256_begin(&hash);
        sha256_add(&hash, target, n);
        sha256_end(&hash, digest);
        hexadecimal(digest, DIGEST, text);
        size = n;
    }
    snprintf(head, sizeof head, "%o %lld %s ", s->st_mode, size, text);
    return add_entry(head, node->path);
}

void write_manifest(const struct header *request) {
    unsigned char digest[DIGEST];
    char text[2 * DIGEST + 1];
    struct roots roots;
    sha256_begin(&of_all);
    read_roots(request, &roots);
    list = fdopen(CONTENT, "w");
    if (!list) _exit(1);
    for (size_t i = 0; i < roots.count; i++)
        if (walk(roots.all[i].path, roots.all[i].label, describe)) {
            if (told_to_stop) answer("too_slow", 0);
            answer_errno();
        }
    if (fclose(list)) answer_errno();
    sha256_end(&of_all, digest);
    hexadecimal(digest, DIGEST, text);
    _exit(dprintf(RESULT, "ok %lld\n%s", listed, text) < 0);
}
