/* Where this process and all that it starts may write. */
#ifndef CONFINE_H
#define CONFINE_H

int confine_writes(int control);

#endif
