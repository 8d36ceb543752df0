/* Operations on programs of the guest, as `serve` of line.h calls them. */
#ifndef ROCINANTE_PROGRAMS_H
#define ROCINANTE_PROGRAMS_H

void op_run(void);
void op_finish(void);

#endif
