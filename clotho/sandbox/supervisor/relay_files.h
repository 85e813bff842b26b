/* What a relay does with files. */
#ifndef RELAY_FILES_H
#define RELAY_FILES_H

#include "frames.h"

#include <sys/types.h>

int serve_file(int verb, struct request *request);
int is_alive(char text[64]);
ssize_t start_of(const char *path, void *to, size_t room);
int make_path(const char *path);

#endif
