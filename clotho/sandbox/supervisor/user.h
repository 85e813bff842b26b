/* The user of commands, where the supervisor has one of its own. */
#ifndef USER_H
#define USER_H

#include <sys/types.h>

extern uid_t command_user; /* 0: commands run as the supervisor's own user */

extern int in_container; /* we are its root, with the rights that contain.c left */

int become_user(uid_t user);
int keep_rights(void);
int become_command_user(void);
int become_archive_user(void);
void give_to_commands(int fd);

#endif
