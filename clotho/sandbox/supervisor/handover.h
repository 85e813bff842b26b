/* The control directory's way from the supervisor to its relays. */
#ifndef HANDOVER_H
#define HANDOVER_H

enum { TOKEN_LENGTH = 32 };

int open_handovers(void);
void hand_over(int socket);
int take_over(const char *token);

#endif
