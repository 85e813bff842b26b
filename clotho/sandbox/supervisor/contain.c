/* At the start of a container, as its PID 1 and root: takes the control directory out of everybody's sight, and gives
 * up what that took.
 *
 * The directory is a bind mount. It is opened, and the mount is detached: from then on it is mounted nowhere, and a
 * command finds an empty folder in its place. Detaching takes CAP_SYS_ADMIN, and leaving it out of the bounding set
 * CAP_SETPCAP: neither reaches a command, nor does CAP_KILL, by which this process can end commands of other users.
 * The system calls that an engine allows to who has CAP_SYS_ADMIN are refused again by the host's own filter. */
#include "contain.h"

#include "control.h"
#include "user.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LAST_CAPABILITY = 63 };
static const int LEFT_TO_COMMANDS[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SETUID, CAP_SETGID};
static const char FILTER[] = "/.clotho/filter"; /* of a host that reaches the directory through us alone */
static char control_text[12], ready_text[12];

static int failed(const char *what) {
    dprintf(2, "%s: %s\n", what, strerror(errno));
    return -1;
}

static unsigned long long left_to_commands(void) {
    unsigned long long set = 0;
    for (size_t i = 0; i < sizeof LEFT_TO_COMMANDS / sizeof *LEFT_TO_COMMANDS; i++) set |= 1ULL << LEFT_TO_COMMANDS[i];
    return set;
}

static int give_up_capabilities(void) {
    unsigned long long kept = left_to_commands(), ours = kept | 1ULL << CAP_KILL;
    for (int each = 0; each <= LAST_CAPABILITY; each++)
        if (!(kept & 1ULL << each) && prctl(PR_CAPBSET_READ, each) == 1 && prctl(PR_CAPBSET_DROP, each))
            return failed("the bounding set");
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2], had[2];
    if (syscall(SYS_capget, &header, had)) return failed("capabilities");
    for (int i = 0; i < 2; i++) {
        unsigned int wanted = (unsigned int)(ours >> 32 * i) & had[i].permitted;
        sets[i] = (struct __user_cap_data_struct){.effective = wanted, .permitted = wanted};
    }
    return syscall(SYS_capset, &header, sets) ? failed("capabilities") : 0;
}

/* Returns the number of instructions, 0 where they can't be read. */
static int read_filter(int directory, struct sock_filter *filter) {
    int fd = openat(directory, "filter", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) fd = open(FILTER, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? 0 : read(fd, filter, BPF_MAXINSNS * sizeof *filter);
    if (fd >= 0) close(fd);
    return n > 0 ? (int)(n / sizeof *filter) : 0;
}

static int install(struct sock_filter *filter, int length) {
    struct sock_fprog program = {(unsigned short)length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return failed("no new privileges");
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? failed("the filter of system calls") : 0;
}

/* The user by name or number, as the image knows them. */
long long user_of(const char *name) {
    long long user = natural(name);
    struct passwd *entry = user < 0 ? getpwnam(name) : NULL;
    return entry ? (long long)entry->pw_uid : user;
}

/* The control directory and its folders, unless the host has made them. Their group is the commands' user. */
int make_entries(const char *path, uid_t owner, gid_t commands) {
    static const char *const FOLDERS[] = {".", "c", "f", "sessions"};
    mkdir(path, 0700);
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW), bad = directory < 0;
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS && !bad; i++) {
        bad = mkdirat(directory, FOLDERS[i], 0700) && errno != EEXIST;
        if (!bad) bad = fchmodat(directory, FOLDERS[i], 0700, 0) || fchownat(directory, FOLDERS[i], owner, commands, 0);
    }
    if (directory >= 0) close(directory);
    return bad ? failed(path) : 0;
}

/* FILTER PREFIX: in a view that another program made, which knows no such filter and adds variables of its own. The
 * filter comes as a descriptor; variables with the prefix stay, without it. */
int begin_within(char **arguments) {
    static struct sock_filter filter[BPF_MAXINSNS];
    int fd = atoi(arguments[0]);
    ssize_t n = pread(fd, filter, sizeof filter, 0);
    size_t prefix = strlen(arguments[1]);
    char **kept = environ;
    close(fd);
    for (char **each = environ; *each; each++)
        if (!strncmp(*each, arguments[1], prefix)) *kept++ = *each + prefix;
    *kept = NULL;
    return n > 0 ? install(filter, (int)(n / sizeof *filter)) : failed("reading the filter of system calls");
}

/* CONTROL USER ... become the descriptors that `serve` begins with: of the directory, and of the file `ready` there. */
int contain(char **arguments, int make) {
    static struct sock_filter filter[BPF_MAXINSNS];
    long long user = user_of(arguments[1]);
    if (user < 0 || user >= UINT_MAX) return failed(arguments[1]);
    if (make && make_entries(arguments[0], (uid_t)user, (gid_t)user)) return -1;
    int directory = open(arguments[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int ready = directory < 0 ? -1 : openat(directory, "ready", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (ready < 0 || (make && fchown(ready, (uid_t)user, (gid_t)user))) return failed(arguments[0]);
    int length = read_filter(directory, filter);
    if (!length) return failed("reading the filter of system calls");
    if (umount2(arguments[0], MNT_DETACH)) return failed("detaching the control directory");
    if (give_up_capabilities()) return -1;
    if (user && (setgroups(0, NULL) || setresgid(user, user, user))) return failed("its group");
    command_user = (uid_t)user;
    in_container = 1;
    if (install(filter, length)) return -1;
    snprintf(control_text, sizeof control_text, "%d", directory);
    snprintf(ready_text, sizeof ready_text, "%d", ready);
    arguments[0] = control_text;
    arguments[1] = ready_text;
    return 0;
}
