/* Memory that grows, and bytes as text. */
#ifndef BYTES_H
#define BYTES_H

#include <stddef.h>

void *grown(void *memory, size_t *room, size_t wanted, size_t each); /* ends the process where there is none */
void hexadecimal(const unsigned char *bytes, size_t length, char *text);

#endif
