/* Stopping all commands for a while. */
#ifndef FREEZE_H
#define FREEZE_H

int is_frozen(void);
int freeze(void);
void thaw(void);

#endif
