/* What a worker elsewhere waits for in the control directory: entries that appear, and the end of the supervisor. */
#include "waits.h"

#include "control.h"
#include "relay_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAILED 0x80000000u
enum { MOST_WAITS = 1024, MOST_NAMES = 12, SMALL = 64 << 10, INSTANCE = 64 };

struct wait {
    struct wait *next;
    uint64_t number;
    int awaited, count, folder[MOST_NAMES];
    char *path[MOST_NAMES];
};
static struct wait *waits;
static int wait_count, events = -1;

static int is_over(const struct wait *wait) {
    char text[64];
    struct stat s;
    if (!wait->awaited) return 1;
    for (int i = 0; i < wait->awaited; i++)
        if (!fstatat(control, wait->path[i], &s, AT_SYMLINK_NOFOLLOW)) return 1;
    return !is_alive(text);
}

static size_t put_part(unsigned char *to, uint32_t head, size_t size) {
    for (int i = 0; i < 4; i++) to[i] = head >> (24 - 8 * i) & 0xff;
    return 4 + size;
}

static void answer_wait(const struct wait *wait) {
    static unsigned char found[4 + INSTANCE + MOST_NAMES * (4 + SMALL)];
    int length = is_alive((char *)found + 4); /* looked at first */
    size_t used = put_part(found, length, length);
    for (int i = wait->awaited; i < wait->count; i++) {
        ssize_t n = start_of(wait->path[i], found + used + 4, SMALL);
        used += n < 0 ? put_part(found + used, FAILED | errno, 0) : put_part(found + used, (uint32_t)n, n);
    }
    reply(wait->number, 0, found, used);
}

static int is_watched(int folder) {
    for (struct wait *wait = waits; wait; wait = wait->next)
        for (int i = 0; i < wait->count; i++)
            if (wait->folder[i] == folder) return 1;
    return 0;
}

static void forget_wait(struct wait **at) {
    struct wait *wait = *at;
    *at = wait->next;
    wait_count--;
    for (int i = 0; i < wait->count; i++) {
        if (wait->folder[i] >= 0 && !is_watched(wait->folder[i])) inotify_rm_watch(events, wait->folder[i]);
        free(wait->path[i]);
    }
    free(wait);
}

void answer_waits(void) {
    char text[4096];
    while (events >= 0 && read(events, text, sizeof text) > 0) continue;
    for (struct wait **at = &waits; *at;) {
        if (is_over(*at)) {
            answer_wait(*at);
            forget_wait(at);
        } else at = &(*at)->next;
    }
}

static int watch(const char *folder, uint32_t what) {
    char path[64 + MOST_PATH];
    if (events < 0) return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", control, folder);
    return inotify_add_watch(events, path, what);
}

void begin_wait(struct request *request) {
    char path[MOST_PATH];
    struct wait *wait = calloc(1, sizeof *wait);
    if (!wait || wait_count == MOST_WAITS) _exit(1);
    wait->number = request->number;
    wait->awaited = (int)take_number(request, 1);
    while (request->at < request->end && !request->damaged && wait->count < MOST_NAMES) {
        take_entry(request, path);
        if (!(wait->path[wait->count] = strdup(path))) _exit(1);
        char *slash = strrchr(path, '/');
        if (slash) *slash = 0;
        int watched = wait->count < wait->awaited && !request->damaged;
        wait->folder[wait->count++] = watched ? watch(slash ? path : ".", IN_CREATE | IN_MOVED_TO) : -1;
    }
    wait->next = waits;
    waits = wait;
    wait_count++;
    if (request->damaged || request->at < request->end || wait->awaited > wait->count) {
        forget_wait(&waits);
        reply(request->number, EINVAL, NULL, 0);
    } else if (is_over(wait)) {
        answer_wait(wait);
        forget_wait(&waits);
    }
}

void end_wait(uint64_t number) {
    for (struct wait **at = &waits; *at; at = &(*at)->next)
        if ((*at)->number == number) {
            answer_wait(*at);
            forget_wait(at);
            return;
        }
}

/* Returns what tells of events; -1 where there is no such thing, and who waits has to look. */
int open_waits(void) {
    events = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    watch("alive", IN_CLOSE_WRITE);
    return events;
}

int is_waited(void) { return waits != NULL; }
