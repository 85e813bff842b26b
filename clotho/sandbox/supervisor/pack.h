/* Writing an archive of the sandbox's folders. */
#ifndef PACK_H
#define PACK_H

#include "control.h"

void pack(const struct header *request, int processes) __attribute__((noreturn));

#endif
