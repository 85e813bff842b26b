/* What a transfer's child has open, and how it answers and ends. */
#ifndef ANSWER_H
#define ANSWER_H

#include <signal.h>

enum { CONTENT = 3, RESULT = 4, ENTRY = 5 }; /* descriptors; ENTRY is the request's directory */

extern volatile sig_atomic_t told_to_stop;

void answer(const char *word, long long size) __attribute__((noreturn));
void answer_errno(void) __attribute__((noreturn));

#endif
