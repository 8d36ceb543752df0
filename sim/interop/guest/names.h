/* Names of verbs' numbers: those of rdma-core without their prefix. */
#ifndef ROCINANTE_NAMES_H
#define ROCINANTE_NAMES_H

#include "line.h"

extern const struct name access_names[], type_names[], mtu_names[], state_names[],
	opcode_names[], send_flag_names[], wc_opcode_names[], wc_flag_names[], status_names[];

#endif
