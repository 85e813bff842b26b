/* The list of the workspace's files. */
#ifndef MANIFEST_H
#define MANIFEST_H

#include "control.h"

void open_manifest_memory(void);
void write_manifest(const struct header *request) __attribute__((noreturn));

#endif
