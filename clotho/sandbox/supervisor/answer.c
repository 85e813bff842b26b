/* How a transfer's child answers: a word and a number, and its end. */
#include "answer.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

volatile sig_atomic_t told_to_stop;

void answer(const char *word, long long size) {
    _exit(dprintf(RESULT, "%s %lld\n", word, size) < 0);
}

void answer_errno(void) {
    switch (errno) {
    case ENOENT:
    case ENOTDIR: answer("not_found", 0);
    case EACCES:
    case EPERM:
    case EROFS: answer("permission_denied", 0);
    case ENOSPC:
    case EDQUOT: answer("no_space", 0);
    case EISDIR: answer("is_directory", 0);
    case ENAMETOOLONG: answer("name_too_long", 0);
    case ELOOP: answer("not_regular", 0);
    }
    answer("failed", errno);
}
