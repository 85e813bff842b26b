/* Reading an archive into the folders of a new sandbox. */
#ifndef UNPACK_H
#define UNPACK_H

#include "control.h"

void unpack(const struct header *request) __attribute__((noreturn));

#endif
