/* Reading an archive's bytes, and the headers of its members. */
#ifndef MEMBER_H
#define MEMBER_H

#include "tar.h"

#include <time.h>

struct member {
    char *path, *link;
    struct timespec mtime;
    long long size, real_size;
    int sparse;
};

extern int stream;         /* where the archive is read from */
extern long long position; /* how much of it has been */

void damaged(void);
void require(int fine);
void skip_padding(long long read);
void take_all(void *to, size_t length);
void take_to_file(int fd, off_t at, long long size);
long long read_number(const char *text);
long long octal(const char *field, size_t length);
int read_member(struct member *member, struct tar_header *header);
void forget_member(struct member *member);

#endif
