/* Two users of one sandbox: the supervisor's, which is root in the sandbox's user namespace and keeps the few rights
 * that it needs, and the commands', which has none. They share a group, so that a command can open again what it has
 * open: `echo > /dev/stderr` opens a file of the supervisor's. */
#include "user.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

uid_t command_user;
int in_container;

int become_user(uid_t user) {
    return setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user) ? -1 : 0;
}

/* The rights that stay, for this program alone: what it runs has none, as nothing that it runs is root's. */
int keep_rights(void) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct rights[2] = {{0}, {0}};
    rights[0].effective = rights[0].permitted = 1 << CAP_KILL | 1 << CAP_SETUID | 1 << CAP_SETGID | 1 << CAP_CHOWN;
    for (int each = 0; prctl(PR_CAPBSET_READ, each, 0, 0, 0) >= 0; each++)
        if (prctl(PR_CAPBSET_DROP, each, 0, 0, 0)) return -1;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)) return -1;
    return (int)syscall(SYS_capset, &head, rights);
}

/* Out of reach of the commands, which are the same user's, until it runs another program. */
int become_command_user(void) {
    if (!command_user) return 0;
    return become_user(command_user) || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) ? -1 : 0;
}

/* In a container files have many owners: archives are made, listed and unpacked by its root, who keeps them. */
int become_archive_user(void) { return in_container ? setresgid(0, 0, 0) : become_command_user(); }

/* A pipe's or a terminal's end: commands may want to open it once more. */
void give_to_commands(int fd) {
    if (command_user && fd >= 0) (void)!fchown(fd, command_user, -1);
}
