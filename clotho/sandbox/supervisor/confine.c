/* Landlock over the sandbox's mounts: what was mounted to be written to when the sandbox began, and nothing else, whatever
 * the mounts become. One rule set for the supervisor and all commands, so that they may look at and signal one another
 * as before; it costs nothing when a command starts. Kernels before 6.2 have none that knows truncation. */
#include "confine.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEAST_VERSION = 3 };
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE /* headers before 6.2 */
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif
#define ON_FILES (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE)
#define EVERYTHING \
    (ON_FILES | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR \
     | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK \
     | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM \
     | LANDLOCK_ACCESS_FS_REFER)

static int allow(int rules, int fd, unsigned long long rights) {
    struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
    return (int)syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

static int allow_path(int rules, const char *path, unsigned long long rights) {
    struct stat s;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) return 0; /* mounted over: nobody gets there */
    int refused = fstat(fd, &s) || allow(rules, fd, S_ISDIR(s.st_mode) ? rights : rights & ON_FILES);
    close(fd);
    return refused ? -1 : 0;
}

/* The kernel writes blanks and backslashes in paths as \040 and the like. */
static void unescape(char *path) {
    char *to = path;
    for (const char *from = path; *from; to++) {
        if (*from != '\\') *to = *from++;
        else {
            char digits[4] = {from[1], from[2], from[3], 0};
            *to = (char)strtol(digits, NULL, 8);
            from += 4;
        }
    }
    *to = 0;
}

static int allow_mounts(int rules) {
    char *line = NULL, path[PATH_MAX], options[256];
    size_t room = 0;
    int refused = 0;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    if (!mounts) return -1;
    while (!refused && getline(&line, &room, mounts) > 0) {
        if (sscanf(line, "%*s %*s %*s %*s %4095s %255s", path, options) != 2 || strncmp(options, "rw", 2)) continue;
        unescape(path);
        refused = allow_path(rules, path, EVERYTHING);
    }
    free(line);
    fclose(mounts);
    return refused;
}

/* 0 also where the kernel has no such thing. */
int confine_writes(int control) {
    struct landlock_ruleset_attr attributes = {.handled_access_fs = EVERYTHING};
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < LEAST_VERSION) return 0;
    int rules = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes.handled_access_fs, 0);
    if (rules < 0) return -1;
    int refused = allow(rules, control, EVERYTHING) || allow_path(rules, "/dev", ON_FILES) || allow_mounts(rules)
                  || syscall(SYS_landlock_restrict_self, rules, 0);
    close(rules);
    return refused ? -1 : 0;
}
