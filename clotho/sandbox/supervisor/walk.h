/* Walking a tree that a hostile user made. */
#ifndef WALK_H
#define WALK_H

#include <sys/stat.h>

struct node {
    int dir; /* `name` is looked up here */
    const char *name, *path;
    struct stat stat;
};
typedef int visitor(const struct node *node);

int walk(const char *root, const char *label, visitor *visit);
int open_node(const struct node *node);

#endif
