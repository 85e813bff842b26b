/* On the host, before there is a sandbox: joins its control groups, becomes its users for good, and runs a command.
 * One program instead of a shell, nice and setpriv: they take longer to start than what they do. */
#include "enter.h"

#include "control.h"
#include "user.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT_ENTER = 126 };

static int failed(const char *what) {
    dprintf(2, "%s: %s\n", what, strerror(errno));
    return -1;
}

static int join(const char *group) {
    int fd = open(group, O_WRONLY | O_CLOEXEC);
    int joined = fd >= 0 && write(fd, "0", 1) == 1 ? 0 : failed(group);
    if (fd >= 0) close(fd);
    return joined;
}

static int write_to(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : failed(path);
    if (fd >= 0) close(fd);
    return written;
}

/* Two users of this namespace exist in the new one: the supervisor's as root, the commands' by its own number. */
static int map_users(pid_t pid, uid_t user, uid_t supervisor) {
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
    snprintf(text, sizeof text, "0 %u 1\n%u %u 1\n", supervisor, user, user);
    if (write_to(path, text)) return -1;
    snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
    snprintf(text, sizeof text, "%u %u 1\n", user, user);
    return write_to(path, text);
}

/* A user namespace of two users, in which no further one can be made. Whoever stays outside writes its maps. */
static int enter_namespace(uid_t user, uid_t supervisor) {
    int unshared[2], status = 0;
    pid_t own = getpid(), outside = pipe2(unshared, O_CLOEXEC) ? -1 : fork();
    if (outside < 0) return failed("its users");
    if (outside == 0) {
        char byte;
        close(unshared[1]);
        _exit(read(unshared[0], &byte, 1) != 1 || map_users(own, user, supervisor));
    }
    close(unshared[0]);
    int refused = unshare(CLONE_NEWUSER) || write(unshared[1], "", 1) != 1 ? failed("its namespace of users") : 0;
    close(unshared[1]);
    if (waitpid(outside, &status, 0) != outside || status || refused) return -1;
    if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(0, 0, 0)) return failed("its supervisor's user");
    return write_to("/proc/sys/user/max_user_namespaces", "0");
}

/* -1 for what is no user but root's; "-", which stays the same, is 0. */
static long long user_of(const char *text) {
    long long user = strcmp(text, "-") ? natural(text) : 0;
    return user < UINT_MAX && (user || !strcmp(text, "-")) ? user : -1;
}

/* USER SUPERVISOR NICENESS GROUP... -- COMMAND...; either user may be "-", which stays the same. */
int enter_command(char **arguments) {
    char **group = arguments + 3;
    long long user = user_of(arguments[0]), supervisor = user_of(arguments[1]), niceness = natural(arguments[2]);
    for (; *group && strcmp(*group, "--"); group++)
        if (join(*group)) return CANNOT_ENTER;
    if (!*group || !group[1] || user < 0 || supervisor < 0 || niceness < 0 || (supervisor && !user)) return 2;
    if (niceness) (void)!nice((int)niceness);
    if (supervisor && enter_namespace((uid_t)user, (uid_t)supervisor)) return CANNOT_ENTER;
    if (user && !supervisor && become_user((uid_t)user)) return failed("its user"), CANNOT_ENTER;
    if (user && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return failed("no new privileges"), CANNOT_ENTER;
    execvp(group[1], group + 1);
    failed(group[1]);
    return CANNOT_ENTER;
}
