/* Requests and answers of a relay, as frames: see relay.c. */
#ifndef FRAMES_H
#define FRAMES_H

#include <stddef.h>
#include <stdint.h>

enum { MOST_DATA = 1 << 20, MOST_PATH = 4096, MOST_FRAME = MOST_DATA + 4 * MOST_PATH, FRAME_HEAD = 13 };

struct request {
    const unsigned char *at, *end;
    uint64_t number;
    int damaged; /* its fields end too early, or make no sense */
};

void write_all(const void *content, size_t size);
void reply(uint64_t number, int status, const void *content, size_t size);
void reply_done(uint64_t number, int failed);
uint64_t take_number(struct request *request, int bytes);
void take_path(struct request *request, char path[MOST_PATH]);
void take_entry(struct request *request, char path[MOST_PATH]);

#endif
