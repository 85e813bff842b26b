/* A relay asks for the control directory at a socket without a name in the file system, and proves who sent it by a
 * token. The first that asks sets the token: nothing has been run by then. Nobody is waited for here: from then on the
 * kernel drops what is sent with another token, in its sender, since the end of a descriptor that comes with it, such as
 * of a connection that lingers, may take as long as its sender likes. */
#include "handover.h"

#include "control.h"

#include <errno.h>
#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { AT_ONCE = 16, ANSWER_SECONDS = 10 };
static const char NAME[] = "clotho-supervisor";
static char known[TOKEN_LENGTH];

static socklen_t address(struct sockaddr_un *name) {
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(name->sun_path + 1, NAME, sizeof NAME - 1);
    return offsetof(struct sockaddr_un, sun_path) + sizeof NAME;
}

int open_handovers(void) {
    struct sockaddr_un name;
    socklen_t length = address(&name);
    int socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket_ >= 0 && bind(socket_, (struct sockaddr *)&name, length) == 0) return socket_;
    dprintf(2, "the relays' socket: %s\n", strerror(errno));
    return -1;
}

/* `content` with the descriptor `given`. */
static int send_with(int socket_, const struct sockaddr_un *to, socklen_t length, const void *content, size_t size,
                     int given) {
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control_ = {0};
    struct iovec part = {(void *)content, size};
    struct msghdr message = {.msg_name = (void *)to, .msg_namelen = length, .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control_.room, .msg_controllen = sizeof control_.room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof given);
    memcpy(CMSG_DATA(head), &given, sizeof given);
    return sendmsg(socket_, &message, MSG_NOSIGNAL | (to ? 0 : MSG_DONTWAIT)) == (ssize_t)size ? 0 : -1;
}

/* Returns the descriptor that came with `content`, -1 where none did; `*size` is -1 where nothing came. */
static int receive_with(int socket_, void *content, size_t room, ssize_t *size) {
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control_;
    struct iovec part = {content, room};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control_.room,
                             .msg_controllen = CMSG_LEN(sizeof(int))}; /* with its padding, two would have room */
    int given = -1;
    *size = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *head = *size < 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS
        && head->cmsg_len == CMSG_LEN(sizeof given))
        memcpy(&given, CMSG_DATA(head), sizeof given);
    return given;
}

/* Where a kernel has no filters, what is sent comes here, and is closed here. */
static void drop_others(int socket_) {
    enum { WORDS = TOKEN_LENGTH / 4, COUNT = 2 * WORDS + 4 };
    struct sock_filter filter[COUNT];
    int n = 0;
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0);
    filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TOKEN_LENGTH, 0, COUNT - 3);
    for (int i = 0; i < WORDS; i++) {
        const unsigned char *at = (const unsigned char *)known + 4 * i;
        uint32_t word = (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
        filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4 * i);
        filter[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, word, 0, COUNT - 2 - n);
        n++;
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, TOKEN_LENGTH);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {.len = COUNT, .filter = filter};
    setsockopt(socket_, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

void hand_over(int socket_) {
    char token[TOKEN_LENGTH + 1];
    for (int each = 0; each < AT_ONCE; each++) {
        ssize_t size;
        int asking = receive_with(socket_, token, sizeof token, &size);
        if (size < 0) return;
        if (!*known && size == TOKEN_LENGTH && *token) {
            memcpy(known, token, TOKEN_LENGTH);
            drop_others(socket_);
        }
        int differ = size != TOKEN_LENGTH;
        for (int i = 0; i < TOKEN_LENGTH && !differ; i++) differ |= token[i] ^ known[i];
        if (!differ && asking >= 0) send_with(asking, NULL, 0, "", 1, control);
        if (asking >= 0) close(asking);
    }
}

/* In the relay: returns the control directory, or -1, with errno ECONNREFUSED where there is no supervisor and EACCES
 * where it doesn't know the token. */
int take_over(const char *token) {
    struct sockaddr_un name;
    struct timeval patience = {.tv_sec = ANSWER_SECONDS};
    int ends[2], socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), found = -1;
    char answer;
    ssize_t size;
    if (socket_ < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) return -1;
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    socklen_t length = address(&name);
    int sent = send_with(socket_, &name, length, token, TOKEN_LENGTH, ends[1]);
    int why = errno;
    close(ends[1]);
    if (!sent) {
        found = receive_with(ends[0], &answer, 1, &size);
        why = size == 0 ? EACCES : size < 0 ? errno : 0;
    }
    close(ends[0]);
    close(socket_);
    errno = why;
    return found;
}
