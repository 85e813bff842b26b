/* An archive as it is read: its bytes, and what stands before each member's. Whatever isn't as pack.c writes it is
 * damaged, and the reading ends with that. */
#include "member.h"

#include "answer.h"
#include "bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER = 1 << 18, MAX_RECORDS = 16 << 20 };

int stream = -1;
static char buffer[BUFFER];
static size_t filled, taken;
long long position;

void damaged(void) { answer("damaged", position); }

void require(int fine) {
    if (!fine) answer_errno();
}

static size_t take(const char **bytes, size_t wanted) {
    if (taken == filled) {
        ssize_t n;
        while ((n = read(stream, buffer, BUFFER)) < 0 && errno == EINTR && !told_to_stop) {}
        if (told_to_stop) answer("too_slow", position);
        if (n <= 0) answer("interrupted", position);
        filled = n;
        taken = 0;
    }
    size_t part = filled - taken < wanted ? filled - taken : wanted;
    *bytes = buffer + taken;
    taken += part;
    position += part;
    return part;
}

void take_all(void *to, size_t length) {
    const char *bytes;
    for (size_t done = 0, n; done < length; done += n) {
        n = take(&bytes, length - done);
        memcpy((char *)to + done, bytes, n);
    }
}

void skip_padding(long long read) {
    char rest[BLOCK];
    take_all(rest, (BLOCK - read % BLOCK) % BLOCK);
}

void take_to_file(int fd, off_t at, long long size) {
    const char *bytes;
    for (long long done = 0; done < size;) {
        long long left = size - done;
        size_t n = take(&bytes, left < BUFFER ? left : BUFFER);
        for (size_t written = 0; written < n;) {
            ssize_t w = pwrite(fd, bytes + written, n - written, at + done + written);
            require(w > 0);
            written += w;
        }
        done += n;
    }
}

static void read_time(const char *text, struct timespec *time) {
    char *dot;
    time->tv_sec = strtoll(text, &dot, 10);
    time->tv_nsec = *dot == '.' && strlen(dot) == 10 ? atol(dot + 1) : 0;
    if (time->tv_nsec < 0 || time->tv_nsec > 999999999) damaged();
}

long long read_number(const char *text) {
    long long number = natural(text);
    if (number < 0) damaged();
    return number;
}

static void read_record(const char *name, const char *value, struct member *member) {
    if (!strcmp(name, "path")) member->path = strdup(value);
    else if (!strcmp(name, "linkpath")) member->link = strdup(value);
    else if (!strcmp(name, "mtime")) read_time(value, &member->mtime);
    else if (!strcmp(name, "size")) member->size = read_number(value);
    else if (!strcmp(name, "GNU.sparse.realsize")) {
        member->sparse = 1;
        member->real_size = read_number(value);
    }
}

static void read_records(size_t length, struct member *member) {
    static char *text;
    static size_t room;
    text = grown(text, &room, length + 1, 1);
    take_all(text, length);
    skip_padding(length);
    text[length] = 0;
    for (char *at = text; at < text + length;) {
        char *name;
        size_t size = strtoul(at, &name, 10);
        if (*name != ' ' || size < 5 || size > (size_t)(text + length - at) || at[size - 1] != '\n') damaged();
        at[size - 1] = 0;
        char *value = strchr(++name, '=');
        if (!value || value >= at + size) damaged();
        *value++ = 0;
        read_record(name, value, member);
        at += size;
    }
}

long long octal(const char *field, size_t length) {
    char text[16] = "";
    memcpy(text, field, length);
    return strtoll(text, NULL, 8);
}

static int is_end(const struct tar_header *header) {
    for (size_t i = 0; i < BLOCK; i++)
        if (((const char *)header)[i]) return 0;
    return 1;
}

/* Reads what stands before a member's bytes; 0 at the archive's end. */
int read_member(struct member *member, struct tar_header *own) {
    struct tar_header header;
    *member = (struct member){0};
    take_all(&header, BLOCK);
    if (is_end(&header)) return 0;
    long long length = octal(header.size, 12);
    if (header.type != 'x' || length < 0 || length > MAX_RECORDS) damaged();
    read_records(length, member);
    take_all(own, BLOCK);
    if (!member->size) member->size = octal(own->size, 12);
    if (!member->path || member->size < 0) damaged();
    return 1;
}

void forget_member(struct member *member) {
    free(member->path);
    free(member->link);
}
