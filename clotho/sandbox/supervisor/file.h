/* Reading or writing one file for the host. */
#ifndef FILE_H
#define FILE_H

#include "control.h"

void get(const struct header *header, const char *path, long long max) __attribute__((noreturn));
void put(const struct header *header, char *path, const char *key) __attribute__((noreturn));

#endif
