/* Requests and answers of a relay, as frames. */
#include "frames.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

void write_all(const void *content, size_t size) {
    for (const char *at = content; size;) {
        ssize_t n = write(1, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) {
            struct pollfd out = {.fd = 1, .events = POLLOUT};
            poll(&out, 1, -1);
            continue;
        }
        if (n <= 0) _exit(0);
        at += n;
        size -= n;
    }
}

void reply(uint64_t number, int status, const void *content, size_t size) {
    static unsigned char frame[FRAME_HEAD + MOST_DATA];
    uint32_t length = (uint32_t)size + FRAME_HEAD - 4;
    for (int i = 0; i < 4; i++) frame[i] = length >> (24 - 8 * i) & 0xff;
    for (int i = 0; i < 8; i++) frame[4 + i] = number >> (56 - 8 * i) & 0xff;
    frame[12] = status > 255 ? EIO : status;
    if (size) memcpy(frame + FRAME_HEAD, content, size);
    write_all(frame, FRAME_HEAD + size);
}

void reply_done(uint64_t number, int failed) { reply(number, failed ? errno : 0, NULL, 0); }

uint64_t take_number(struct request *request, int bytes) {
    uint64_t number = 0;
    if (request->end - request->at < bytes) {
        request->damaged = 1;
        return 0;
    }
    while (bytes--) number = number << 8 | *request->at++;
    return number;
}

void take_path(struct request *request, char path[MOST_PATH]) {
    size_t length = take_number(request, 2);
    *path = 0;
    if (request->damaged || !length || length >= MOST_PATH || (size_t)(request->end - request->at) < length
        || memchr(request->at, 0, length)) {
        request->damaged = 1;
        return;
    }
    memcpy(path, request->at, length);
    path[length] = 0;
    request->at += length;
}

/* Of the control directory: no way leads out of it. */
void take_entry(struct request *request, char path[MOST_PATH]) {
    take_path(request, path);
    for (char *part = path; part; part = strchr(part, '/')) {
        if (part != path) part++;
        size_t length = strcspn(part, "/");
        if (!length || (length == 1 && *part == '.') || (length == 2 && part[0] == '.' && part[1] == '.'))
            request->damaged = 1;
    }
}
