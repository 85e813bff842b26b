/* The format of archives: POSIX pax with GNU's sparse files, version 1.0. */
#ifndef TAR_H
#define TAR_H

#include "control.h"

#include <sys/types.h>

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

#endif
