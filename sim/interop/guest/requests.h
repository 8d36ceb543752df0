/* Operations on work queues and completions, as `serve` of line.h calls them. */
#ifndef ROCINANTE_REQUESTS_H
#define ROCINANTE_REQUESTS_H

void op_post_recv(void);
void op_post_send(void);
void op_poll(void);
void op_alloc_mw(void);
void op_dealloc_mw(void);

#endif
