/* A port of the sandbox's loopback, served from outside: see port.c. */
#ifndef PORT_H
#define PORT_H

int serve_port(int port, long most_bytes);

#endif
