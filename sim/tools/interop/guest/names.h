/* Names of verbs' numbers: those of rdma-core without their prefix. */
#ifndef ROCINANTE_NAMES_H
#define ROCINANTE_NAMES_H

#include <infiniband/verbs.h>

#include "line.h"

static const struct name access_names[] = {
	{"LOCAL_WRITE", IBV_ACCESS_LOCAL_WRITE},
	{"REMOTE_WRITE", IBV_ACCESS_REMOTE_WRITE},
	{"REMOTE_READ", IBV_ACCESS_REMOTE_READ},
	{"REMOTE_ATOMIC", IBV_ACCESS_REMOTE_ATOMIC},
	{NULL, 0},
};

static const struct name type_names[] = {{"RC", IBV_QPT_RC}, {NULL, 0}};

static const struct name mtu_names[] = {
	{"256", IBV_MTU_256},	{"512", IBV_MTU_512},	{"1024", IBV_MTU_1024},
	{"2048", IBV_MTU_2048}, {"4096", IBV_MTU_4096}, {NULL, 0},
};

static const struct name state_names[] = {
	{"RESET", IBV_QPS_RESET}, {"INIT", IBV_QPS_INIT}, {"RTR", IBV_QPS_RTR},
	{"RTS", IBV_QPS_RTS},	  {"SQD", IBV_QPS_SQD},	  {"SQE", IBV_QPS_SQE},
	{"ERR", IBV_QPS_ERR},	  {NULL, 0},
};

static const struct name opcode_names[] = {
	{"SEND", IBV_WR_SEND},
	{"SEND_WITH_IMM", IBV_WR_SEND_WITH_IMM},
	{"RDMA_WRITE", IBV_WR_RDMA_WRITE},
	{"RDMA_WRITE_WITH_IMM", IBV_WR_RDMA_WRITE_WITH_IMM},
	{"RDMA_READ", IBV_WR_RDMA_READ},
	{NULL, 0},
};

static const struct name send_flag_names[] = {
	{"FENCE", IBV_SEND_FENCE},
	{"SIGNALED", IBV_SEND_SIGNALED},
	{"SOLICITED", IBV_SEND_SOLICITED},
	{NULL, 0},
};

static const struct name wc_opcode_names[] = {
	{"SEND", IBV_WC_SEND},
	{"RDMA_WRITE", IBV_WC_RDMA_WRITE},
	{"RDMA_READ", IBV_WC_RDMA_READ},
	{"RECV", IBV_WC_RECV},
	{"RECV_RDMA_WITH_IMM", IBV_WC_RECV_RDMA_WITH_IMM},
	{NULL, 0},
};

static const struct name status_names[] = {
	{"SUCCESS", IBV_WC_SUCCESS},
	{"LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR},
	{"LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR},
	{"LOC_EEC_OP_ERR", IBV_WC_LOC_EEC_OP_ERR},
	{"LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR},
	{"WR_FLUSH_ERR", IBV_WC_WR_FLUSH_ERR},
	{"MW_BIND_ERR", IBV_WC_MW_BIND_ERR},
	{"BAD_RESP_ERR", IBV_WC_BAD_RESP_ERR},
	{"LOC_ACCESS_ERR", IBV_WC_LOC_ACCESS_ERR},
	{"REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR},
	{"REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR},
	{"REM_OP_ERR", IBV_WC_REM_OP_ERR},
	{"RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR},
	{"RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR},
	{"LOC_RDD_VIOL_ERR", IBV_WC_LOC_RDD_VIOL_ERR},
	{"REM_INV_RD_REQ_ERR", IBV_WC_REM_INV_RD_REQ_ERR},
	{"REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR},
	{"INV_EECN_ERR", IBV_WC_INV_EECN_ERR},
	{"INV_EEC_STATE_ERR", IBV_WC_INV_EEC_STATE_ERR},
	{"FATAL_ERR", IBV_WC_FATAL_ERR},
	{"RESP_TIMEOUT_ERR", IBV_WC_RESP_TIMEOUT_ERR},
	{"GENERAL_ERR", IBV_WC_GENERAL_ERR},
	{NULL, 0},
};

#endif
