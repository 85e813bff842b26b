/* Children that read or write files for the host, in the sandbox's view and with its rights. */
#ifndef TRANSFER_H
#define TRANSFER_H

#include "control.h"

#include <sys/types.h>

void keep_spare(void);
void start_transfer(const char *key, int fenced);
int end_transfer(pid_t child, int status);
int is_transfer(pid_t pid);
void steady_transfer(pid_t pid);
int is_archiving(void);
ms attend_archive(void);

#endif
