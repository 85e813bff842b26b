/* Becoming the first process of a container, or of another view. */
#ifndef CONTAIN_H
#define CONTAIN_H

#include <sys/types.h>

long long user_of(const char *name);
int begin_within(char **arguments);
int contain(char **arguments, int make);
int make_entries(const char *path, uid_t owner, gid_t commands);

#endif
