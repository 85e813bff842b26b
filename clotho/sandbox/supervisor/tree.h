/* Process trees. Helpers are children of the supervisor that are no commands: nothing here stops or kills them. */
#ifndef TREE_H
#define TREE_H

#include <sys/types.h>

void add_helper(pid_t pid);
void forget_helper(pid_t pid);
int signal_tree(pid_t root, int signal);
int stop_running(int by_level, void (*found)(pid_t), int *processes);
void kill_below(pid_t root);
void kill_strays(void);
void kill_everything(void);

#endif
