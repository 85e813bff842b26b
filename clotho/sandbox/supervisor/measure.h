/* The first pass over what is archived. */
#ifndef MEASURE_H
#define MEASURE_H

#include "sha256.h"
#include "walk.h"

struct measured {
    long long size, left_out;
    struct timespec youngest;
    struct sha256 fingerprint;
};
extern struct measured measured;

int measure(const struct node *node);
void note_outside(void);
int left_outside(void);
void outlast_grain(void);

#endif
