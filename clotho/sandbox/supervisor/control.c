/* The control directory: entries that appear complete or not at all, and headers of requests. */
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int control;
char instance[20];

ms now(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

int is_key(const char *text) {
    return strlen(text) == KEY_LENGTH && strspn(text, "0123456789abcdef") == KEY_LENGTH;
}

int open_entry(const char *kind, const char *key) {
    char path[64];
    snprintf(path, sizeof path, "%s/%s", kind, key);
    return openat(control, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

static int write_whole(int dir, const char *name, const char *text, size_t length) {
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int whole = fd >= 0 && write(fd, text, length) == (ssize_t)length;
    if (fd >= 0) close(fd);
    return whole;
}

/* 0: we made it; -1: somebody was first, or the disk is full. */
int publish_once(int dir, const char *name, const char *text) {
    char unfinished[64];
    snprintf(unfinished, sizeof unfinished, ".%s", name);
    int made = write_whole(dir, unfinished, text, strlen(text)) && linkat(dir, unfinished, dir, name, 0) == 0;
    unlinkat(dir, unfinished, 0);
    return made ? 0 : -1;
}

int replace_file(int dir, const char *name, const char *text, size_t length) {
    char unfinished[64];
    snprintf(unfinished, sizeof unfinished, ".%s", name);
    if (write_whole(dir, unfinished, text, length) && renameat(dir, unfinished, dir, name) == 0) return 0;
    unlinkat(dir, unfinished, 0);
    return -1;
}

/* Lines "name value", ended by an empty one. Returns the file, positioned behind them, or -1. */
int read_header(int dir, const char *name, struct header *header) {
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return -1;
    ssize_t n = pread(fd, header->text, sizeof header->text - 1, 0);
    header->text[n > 0 ? n : 0] = 0;
    char *end = strstr(header->text, "\n\n");
    if (!end) {
        close(fd);
        return -1;
    }
    end[1] = 0;
    header->length = end + 2 - header->text;
    lseek(fd, header->length, SEEK_SET);
    return fd;
}

int header_value(const struct header *header, const char *name, char *value, size_t size) {
    size_t length = strlen(name);
    *value = 0;
    for (const char *line = header->text; *line; line = strchr(line, '\n') + 1)
        if (!strncmp(line, name, length) && line[length] == ' ') {
            const char *from = line + length + 1;
            snprintf(value, size, "%.*s", (int)(strchr(from, '\n') - from), from);
            return 1;
        }
    return 0;
}

/* -1 for what is no number, or none that fits. */
long long natural(const char *text) {
    size_t digits = strspn(text, "0123456789");
    errno = 0;
    long long number = digits && !text[digits] ? strtoll(text, NULL, 10) : -1;
    return errno ? -1 : number;
}

/* Of what is no number, `otherwise`; no more than MOST, so that what is summed up with it doesn't overflow. */
long long header_number(const struct header *header, const char *name, long long otherwise) {
    char value[32];
    long long number = header_value(header, name, value, sizeof value) ? natural(value) : -1;
    return number < 0 ? otherwise : number < MOST ? number : MOST;
}

/* `path` (PATH_MAX bytes) is empty where that job left none. */
void directory_left_by(const char *key, char *path) {
    ssize_t n = 0;
    int dir = *key ? open_entry("c", key) : -1;
    int fd = dir < 0 ? -1 : openat(dir, "cwd", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0) n = read(fd, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = 0;
    if (fd >= 0) close(fd);
    if (dir >= 0) close(dir);
}

void close_from(int first) {
    if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
    for (int fd = first; fd < 4096; fd++) close(fd);
}
