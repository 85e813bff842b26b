/* A port of the sandbox's loopback whose connections are served by whoever reads the output of this job.
 *
 *   supervisor port NUMBER MOST_BYTES
 *
 * A job that outlives its server: its output is the log of all that has come, so that a server which takes over finds
 * every connection that waits for an answer. Both ways, a frame is a connection's number (four bytes), a kind (one) and
 * the length of what follows (four); numbers have their highest byte first.
 *
 *   to the server       O opened; D CONTENT has come; E the peer has closed it, or was cut off;
 *                       S the server's first bytes were taken; W all was handed over that came before its C;
 *                       T NUMBER a server has taken over
 *   from the server     D SERVER CONTENT; C SERVER close it once all is handed over; T SERVER take over
 *
 * SERVER is a number (four bytes) that each server draws higher than those before it. What an earlier one still says has
 * no effect, and connections that it has begun to answer are cut off: their peers ask again. A connection that sends
 * more than MOST_BYTES is cut off, and so is one with which those that wait for answers have sent twice as much. One
 * that stays open after its answer makes room for another. */
#include "port.h"

#include "bytes.h"
#include "frames.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_CONNECTIONS = 64, PIECE = 1 << 16, HEAD = 9, NUMBER = 4, MOST_INPUT = 4 << 20 };

struct connection {
    uint32_t number; /* 0: free */
    int fd, answered, closing;
    long received;
    unsigned char *out;
    size_t room, size, sent;
};
static struct connection connections[MOST_CONNECTIONS];
static uint32_t opened, server;

static uint32_t number_at(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_number(unsigned char *at, uint32_t number) {
    for (int i = 0; i < NUMBER; i++) at[i] = number >> (24 - 8 * i) & 0xff;
}

static void tell(uint32_t connection, char kind, const void *content, size_t size) {
    static unsigned char frame[HEAD + PIECE];
    put_number(frame, connection);
    frame[4] = kind;
    put_number(frame + 5, (uint32_t)size);
    if (size) memcpy(frame + HEAD, content, size);
    write_all(frame, HEAD + size);
}

static void end(struct connection *connection) {
    tell(connection->number, 'E', NULL, 0);
    close(connection->fd);
    free(connection->out);
    *connection = (struct connection){0};
}

static void cut_off(struct connection *connection) {
    struct linger at_once = {.l_onoff = 1};
    setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    end(connection);
}

static struct connection *find(uint32_t number) {
    for (struct connection *each = connections; number && each < connections + MOST_CONNECTIONS; each++)
        if (each->number == number) return each;
    return NULL;
}

/* A free one, or one whose answer was handed over. */
static struct connection *find_place(void) {
    struct connection *done = NULL;
    for (struct connection *each = connections; each < connections + MOST_CONNECTIONS; each++) {
        if (!each->number) return each;
        if (each->closing == 2 && (!done || each->number < done->number)) done = each;
    }
    return done;
}

static void open_connection(int listener) {
    struct connection *place = find_place();
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    if (place->number) end(place);
    *place = (struct connection){.number = ++opened, .fd = fd};
    tell(place->number, 'O', NULL, 0);
}

/* What the server has to keep of requests, as far as it knows. */
static long waiting_bytes(void) {
    long sum = 0;
    for (struct connection *each = connections; each < connections + MOST_CONNECTIONS; each++)
        if (each->number && !each->closing) sum += each->received;
    return sum;
}

static void receive(struct connection *connection, long most_bytes) {
    static unsigned char piece[PIECE];
    ssize_t n = recv(connection->fd, piece, sizeof piece, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        end(connection);
        return;
    }
    if (connection->closing) return; /* it was answered: what else it says doesn't matter */
    if ((connection->received += n) > most_bytes || waiting_bytes() > 2 * most_bytes) cut_off(connection);
    else tell(connection->number, 'D', piece, n);
}

static void hand_over(struct connection *connection) {
    while (connection->sent < connection->size) {
        size_t left = connection->size - connection->sent;
        ssize_t n = send(connection->fd, connection->out + connection->sent, left, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            end(connection);
            return;
        }
        connection->sent += n;
    }
    connection->sent = connection->size = 0;
    if (connection->closing == 1) {
        connection->closing = 2;
        tell(connection->number, 'W', NULL, 0);
        shutdown(connection->fd, SHUT_WR);
    }
}

static void take_over(uint32_t by) {
    unsigned char told[NUMBER];
    server = by;
    for (struct connection *each = connections; each < connections + MOST_CONNECTIONS; each++)
        if (each->number && each->answered && each->closing < 2) cut_off(each);
    put_number(told, by);
    tell(0, 'T', told, sizeof told);
}

/* One frame of a server: its number is the first of what follows the head. */
static void obey(uint32_t number, char kind, const unsigned char *content, size_t size) {
    if (size < NUMBER) _exit(1);
    uint32_t by = number_at(content);
    if (kind == 'T' && by > server) take_over(by);
    struct connection *connection = find(number);
    if (by != server || !connection || connection->closing) return;
    if (!connection->answered) tell(number, 'S', NULL, 0);
    connection->answered = 1;
    if (kind == 'C') connection->closing = 1;
    size -= NUMBER;
    connection->out = grown(connection->out, &connection->room, connection->size + size + 1, 1);
    memcpy(connection->out + connection->size, content + NUMBER, size);
    connection->size += size;
    hand_over(connection);
}

static void read_server(void) {
    static unsigned char text[HEAD + MOST_INPUT];
    static size_t have;
    ssize_t n = read(0, text + have, sizeof text - have);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) _exit(0);
    have += n;
    unsigned char *at = text;
    while (text + have - at >= HEAD) {
        size_t size = number_at(at + 5);
        if (size > MOST_INPUT) _exit(1);
        if ((size_t)(text + have - at) < HEAD + size) break;
        obey(number_at(at), (char)at[4], at + HEAD, size);
        at += HEAD + size;
    }
    have -= at - text;
    memmove(text, at, have);
}

static int older_first(const void *one, const void *other) {
    uint32_t a = (*(struct connection *const *)one)->number, b = (*(struct connection *const *)other)->number;
    return a < b ? -1 : 1;
}

static int listen_at(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes)) return -1;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, MOST_CONNECTIONS)) return -1;
    return fd;
}

int serve_port(int port, long most_bytes) {
    int listener = listen_at(port);
    if (listener < 0) return 4;
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_DUMPABLE, 0); /* commands of the same user could open its input and its output */
    while (1) {
        struct connection *open[MOST_CONNECTIONS];
        struct pollfd polled[MOST_CONNECTIONS + 2] = {{.fd = 0, .events = POLLIN}};
        polled[1] = (struct pollfd){.fd = find_place() ? listener : -1, .events = POLLIN};
        int n = 0;
        for (struct connection *each = connections; each < connections + MOST_CONNECTIONS; each++)
            if (each->number) open[n++] = each;
        /* A peer that asks again has closed its former connection: that end is told before the new request. */
        qsort(open, n, sizeof *open, older_first);
        for (int i = 0; i < n; i++)
            polled[i + 2] = (struct pollfd){.fd = open[i]->fd, .events = POLLIN | (open[i]->size ? POLLOUT : 0)};
        if (poll(polled, n + 2, -1) < 0) continue;
        for (int i = 0; i < n; i++) {
            short happened = polled[i + 2].revents;
            if (happened & POLLOUT) hand_over(open[i]);
            if (open[i]->number && happened & ~POLLOUT) receive(open[i], most_bytes);
        }
        if (polled[1].revents) open_connection(listener);
        if (polled[0].revents) read_server();
    }
}
