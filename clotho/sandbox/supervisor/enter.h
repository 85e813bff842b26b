/* Becoming a sandbox's process. */
#ifndef ENTER_H
#define ENTER_H

int enter_command(char **arguments);

#endif
