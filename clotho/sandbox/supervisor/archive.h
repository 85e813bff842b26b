/* Archives of the sandbox's folders: what a checkpoint is made of. Everything here runs in a child of its own. */
#ifndef ARCHIVE_H
#define ARCHIVE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "supervisor.h"

/* ---- walk.c ---- */

struct node {
    int dir; /* `name` is looked up here */
    const char *name, *path;
    struct stat stat;
};
typedef int visitor(const struct node *node);

int walk(const char *root, const char *label, visitor *visit);
int open_node(const struct node *node);
void *grown(void *memory, size_t *room, size_t wanted, size_t each);

/* ---- sha256.c ---- */

enum { DIGEST = 32 };
struct sha256 {
    uint32_t state[8];
    uint64_t length;
    unsigned char block[64];
};
void sha256_begin(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *bytes, size_t length);
void sha256_end(struct sha256 *hash, unsigned char digest[DIGEST]);
void hexadecimal(const unsigned char *bytes, size_t length, char *text);

/* ---- tar.c: the format; POSIX pax with GNU's sparse files, version 1.0 ---- */

enum { BLOCK = 512, MAX_ROOTS = 8 };
struct tar_header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
    char magic[6], version[2], owner[32], group[32], major[8], minor[8], prefix[155], unused[12];
};
struct segment {
    off_t start, size;
};
struct root {
    char label[16], path[PATH_MAX];
};
struct roots {
    size_t count;
    struct root all[MAX_ROOTS];
};
void read_roots(const struct header *header, struct roots *roots);
void fill_checksum(struct tar_header *header);

/* ---- pack.c, unpack.c, manifest.c: each answers and ends the process ---- */

extern volatile sig_atomic_t told_to_stop;
void pack(const struct header *request, int processes) __attribute__((noreturn));
void unpack(const struct header *request) __attribute__((noreturn));
void write_manifest(const struct header *request) __attribute__((noreturn));
void open_manifest_memory(void);

#endif
