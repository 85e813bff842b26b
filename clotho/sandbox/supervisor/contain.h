/* Becoming the first process of a container. */
#ifndef CONTAIN_H
#define CONTAIN_H

int contain(char **arguments);

#endif
