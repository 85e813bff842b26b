/* On the host, before there is a sandbox: joins its control groups, becomes its user for good, and runs a command.
 * One program instead of a shell, nice and setpriv: they take longer to start than what they do. */
#include "enter.h"

#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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

static int become(uid_t user) {
    if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user)) return failed("its user");
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? failed("no new privileges") : 0;
}

/* USER NICENESS GROUP... -- COMMAND...; USER may be "-", which stays the same. */
int enter_command(char **arguments) {
    char **group = arguments + 2;
    long long user = natural(arguments[0]), niceness = natural(arguments[1]);
    if ((user <= 0 || user >= UINT_MAX) && strcmp(arguments[0], "-")) return 2;
    for (; *group && strcmp(*group, "--"); group++)
        if (join(*group)) return CANNOT_ENTER;
    if (!*group || !group[1] || niceness < 0) return 2;
    if (niceness) (void)!nice((int)niceness);
    if (user > 0 && become((uid_t)user)) return CANNOT_ENTER;
    execvp(group[1], group + 1);
    failed(group[1]);
    return CANNOT_ENTER;
}
