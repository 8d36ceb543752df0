/* The guest's end of an interoperability test: verbs by libibverbs, asked for line by line.
 *
 * agent PORT: makes a Soft-RoCE device on eth0, then answers the requests of PORT (a device file)
 * until its other end is closed. Operations and names are those of `rocinante endpoint`. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>

#include "line.h"
#include "link.h"
#include "names.h"
#include "objects.h"
#include "programs.h"
#include "requests.h"

#define DEVICE "rxe0"
#define NETDEV "eth0"
#define CQ_ENTRIES 8192
#define LARGEST_REGION (64u << 20)

static struct ibv_context *context;
struct ibv_pd *pd;
struct ibv_cq *cq;
static struct region regions[OBJECTS];
static struct ibv_qp *qps[OBJECTS];
static struct ibv_srq *srqs[OBJECTS];
static unsigned region_count, qp_count, srq_count;

struct region *region(uint64_t index)
{
	if (index >= region_count || !regions[index].mr)
		fail(EINVAL, "no MR %" PRIu64, index);
	return &regions[index];
}

struct ibv_qp *queue_pair(void)
{
	uint64_t index = number("qp", UINT32_MAX);

	if (index >= qp_count || !qps[index])
		fail(EINVAL, "no QP %" PRIu64, index);
	return qps[index];
}

void ring_doorbells(void)
{
	for (unsigned i = 0; i < qp_count; i++) {
		struct ibv_qp_ex *qp = qps[i] ? ibv_qp_to_qp_ex(qps[i]) : NULL;

		if (!qp)
			continue;
		ibv_wr_start(qp);
		ibv_wr_complete(qp); /* an error is that of a queue pair in ERR or below RTS */
	}
}

struct ibv_srq *shared_queue(void)
{
	uint64_t index = number("srq", UINT32_MAX);

	if (index >= srq_count || !srqs[index])
		fail(EINVAL, "no SRQ %" PRIu64, index);
	return srqs[index];
}

/* A part of a region that must lie inside of it. */
static uint8_t *part(struct ibv_mr *mr, uint64_t offset, uint64_t length)
{
	if (offset > mr->length || length > mr->length - offset)
		fail(EINVAL, "offset %" PRIu64 ", length %" PRIu64 " in a region of %zu bytes",
		     offset, length, mr->length);
	return (uint8_t *)mr->addr + offset;
}

/* The GID of the other end's family: its index goes to `index`. */
static bool source_gid(const union ibv_gid *peer, uint8_t *index)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct ibv_gid_entry entries[64];
	ssize_t count = ibv_query_gid_table(context, entries, 64, 0);

	for (ssize_t i = 0; i < count; i++) {
		const uint8_t *own = entries[i].gid.raw;
		bool v4 = !memcmp(own, mapped, 12), peer_v4 = !memcmp(peer->raw, mapped, 12);
		bool local = own[0] == 0xfe, peer_local = peer->raw[0] == 0xfe;

		if (entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 && v4 == peer_v4 &&
		    local == peer_local) {
			*index = entries[i].gid_index;
			return true;
		}
	}
	return false;
}

void take_way(const char *key, struct ibv_ah_attr *attr)
{
	*attr = (struct ibv_ah_attr){.is_global = 1, .port_num = PORT, .grh = {.hop_limit = 64}};
	if (inet_pton(AF_INET6, word(key), attr->grh.dgid.raw) != 1)
		fail(EINVAL, "%s %s is not a GID", key, word(key));
	if (!source_gid(&attr->grh.dgid, &attr->grh.sgid_index))
		fail(EADDRNOTAVAIL, "no own GID of the family of %s", word(key));
}

static void op_info(void)
{
	struct ibv_gid_entry entries[64];
	ssize_t count = ibv_query_gid_table(context, entries, 64, 0);
	struct ibv_port_attr port;
	char mac[18] = "";
	FILE *file;
	int error = ibv_query_port(context, PORT, &port);

	if (error)
		fail(error, "ibv_query_port: %s", strerror(error));
	file = fopen("/sys/class/net/" NETDEV "/address", "r");
	if (!file || fscanf(file, "%17s", mac) != 1)
		fail(ENODEV, "no MAC address");
	fclose(file);
	fprintf(answer, "ok mac=%s max_mtu=%s gids=", mac, name_of(mtu_names, port.active_mtu));
	for (ssize_t i = 0; i < count; i++) {
		char text[INET6_ADDRSTRLEN];

		inet_ntop(AF_INET6, entries[i].gid.raw, text, sizeof(text));
		fprintf(answer, "%s%s", i ? "," : "", text);
	}
}

static void op_reg_mr(void)
{
	size_t length = number("length", LARGEST_REGION);
	const char *va = word_or("va", NULL);
	int access = flags(access_names, "access");
	struct region *new = &regions[region_count];
	void *memory;

	if (!length)
		fail(EINVAL, "length is 0");
	if (region_count == OBJECTS)
		fail(ENOMEM, "%d MRs", OBJECTS);
	/* Registered memory is pinned; whole pages, so that regions share none. */
	if (posix_memalign(&memory, 4096, (length + 4095) & ~4095ul))
		fail(ENOMEM, "%zu bytes", length);
	memset(memory, 0, length);
	new->address = va ? take_number(&va, 0, UINT64_MAX) : (uintptr_t)memory;
	new->mr = ibv_reg_mr_iova(pd, memory, length, new->address, access);
	if (!new->mr) {
		int error = errno;

		free(memory);
		fail(error, "ibv_reg_mr: %s", strerror(error));
	}
	fprintf(answer, "ok mr=%u addr=%" PRIu64 " lkey=%u rkey=%u", region_count++, new->address,
		new->mr->lkey, new->mr->rkey);
}

static void op_dereg_mr(void)
{
	struct region *old = region(number("mr", UINT32_MAX));
	void *memory = old->mr->addr;
	int error = ibv_dereg_mr(old->mr);

	if (error)
		fail(error, "ibv_dereg_mr: %s", strerror(error));
	old->mr = NULL;
	free(memory);
	fputs("ok", answer);
}

static void op_write_mem(void)
{
	struct ibv_mr *mr = region(number("mr", UINT32_MAX))->mr;
	size_t size = strlen(word("data")) / 2;

	take_hex("data", part(mr, number("offset", UINT64_MAX), size), size);
	fputs("ok", answer);
}

static void op_read_mem(void)
{
	struct ibv_mr *mr = region(number("mr", UINT32_MAX))->mr;
	uint64_t length = number("length", UINT64_MAX);
	uint8_t *from = part(mr, number("offset", UINT64_MAX), length);

	fputs("ok data=", answer);
	put_hex(from, length);
}

static void op_create_qp(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
		.send_cq = cq,
		.recv_cq = cq,
		.srq = word_or("srq", NULL) ? shared_queue() : NULL,
		.qp_type = named(type_names, word("type"), strlen(word("type"))),
		.sq_sig_all = number_or("sq_sig_all", 1, 0),
		.cap = {
			.max_send_wr = number("max_send_wr", UINT32_MAX),
			.max_recv_wr = number("max_recv_wr", UINT32_MAX),
			.max_send_sge = SGES,
			.max_recv_sge = SGES,
		},
	};
	struct ibv_qp *qp;

	if (qp_count == OBJECTS)
		fail(ENOMEM, "%d QPs", OBJECTS);
	qp = ibv_create_qp_ex(context, &attr);
	if (!qp)
		fail(errno, "ibv_create_qp_ex: %s", strerror(errno));
	qps[qp_count] = qp;
	fprintf(answer, "ok qp=%u qpn=%u", qp_count++, qp->qp_num);
}

static void op_destroy_qp(void)
{
	struct ibv_qp *qp = queue_pair();
	int error = ibv_destroy_qp(qp);

	if (error)
		fail(error, "ibv_destroy_qp: %s", strerror(error));
	qps[number("qp", UINT32_MAX)] = NULL;
	fputs("ok", answer);
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state state, int mask)
{
	int error;

	attr->qp_state = state;
	error = ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
	if (error)
		fail(error, "ibv_modify_qp to %s: %s", name_of(state_names, state),
		     strerror(error));
}

/* What the steps to INIT, RTR and RTS set, for each type. */
static const struct steps {
	int init, rtr, rts;
} steps[] = {
	[IBV_QPT_RC] = {
		IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC,
	},
	[IBV_QPT_UC] = {
		IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
		IBV_QP_SQ_PSN,
	},
	[IBV_QPT_UD] = {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0, IBV_QP_SQ_PSN},
};

static void op_connect(void)
{
	struct ibv_qp *qp = queue_pair();
	const struct steps *step = &steps[qp->qp_type];
	struct ibv_qp_attr attr = {
		.port_num = PORT,
		.qp_access_flags = flags(access_names, "access"),
		.path_mtu = named(mtu_names, word("path_mtu"), strlen(word("path_mtu"))),
		.dest_qp_num = number("dest_qpn", 0xffffff),
		.qkey = number_or("qkey", UINT32_MAX, 0),
		.rq_psn = number("rq_psn", 0xffffff),
		.sq_psn = number("sq_psn", 0xffffff),
		.timeout = number_or("timeout", 31, 14),
		.retry_cnt = number_or("retry_cnt", 7, 7),
		.rnr_retry = number_or("rnr_retry", 7, 7),
		.min_rnr_timer = number_or("min_rnr_timer", 31, 12),
		.max_rd_atomic = number_or("max_rd_atomic", 128, 4),
		.max_dest_rd_atomic = number_or("max_dest_rd_atomic", 128, 4),
	};

	take_way("dest_gid", &attr.ah_attr);
	modify(qp, &attr, IBV_QPS_INIT, step->init);
	modify(qp, &attr, IBV_QPS_RTR, step->rtr);
	modify(qp, &attr, IBV_QPS_RTS, step->rts);
	fputs("ok", answer);
}

static void op_create_srq(void)
{
	struct ibv_srq_init_attr attr = {
		.attr = {.max_wr = number("max_wr", UINT32_MAX), .max_sge = SGES},
	};
	struct ibv_srq *srq;

	if (srq_count == OBJECTS)
		fail(ENOMEM, "%d SRQs", OBJECTS);
	srq = ibv_create_srq(pd, &attr);
	if (!srq)
		fail(errno, "ibv_create_srq: %s", strerror(errno));
	srqs[srq_count] = srq;
	fprintf(answer, "ok srq=%u", srq_count++);
}

static void op_destroy_srq(void)
{
	int error = ibv_destroy_srq(shared_queue());

	if (error)
		fail(error, "ibv_destroy_srq: %s", strerror(error));
	srqs[number("srq", UINT32_MAX)] = NULL;
	fputs("ok", answer);
}

static void op_modify(void)
{
	struct ibv_qp_attr attr = {0};

	modify(queue_pair(), &attr, named(state_names, word("state"), strlen(word("state"))), 0);
	fputs("ok", answer);
}

static void op_query_qp(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int error = ibv_query_qp(queue_pair(), &attr, IBV_QP_STATE, &init);

	if (error)
		fail(error, "ibv_query_qp: %s", strerror(error));
	fprintf(answer, "ok state=%s", name_of(state_names, attr.qp_state));
}

/* The counters of the RDMA port and of the network device, as sysfs has them. */
static void op_counters(void)
{
	static const char *const folders[] = {
		"/sys/class/infiniband/" DEVICE "/ports/1/hw_counters",
		"/sys/class/net/" NETDEV "/statistics",
	};

	fputs("ok", answer);
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		DIR *folder = opendir(folders[i]);
		struct dirent *entry;

		while (folder && (entry = readdir(folder))) {
			char path[512];
			unsigned long long value;
			FILE *file;

			snprintf(path, sizeof(path), "%s/%s", folders[i], entry->d_name);
			file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
			if (file && fscanf(file, "%llu", &value) == 1)
				fprintf(answer, " %s=%llu", entry->d_name, value);
			if (file)
				fclose(file);
		}
		if (folder)
			closedir(folder);
	}
}

static void serve(const char *operation)
{
	static const struct {
		const char *name;
		void (*function)(void);
	} operations[] = {
		{"info", op_info},           {"reg_mr", op_reg_mr},
		{"dereg_mr", op_dereg_mr},   {"write_mem", op_write_mem},
		{"read_mem", op_read_mem},   {"create_qp", op_create_qp},
		{"destroy_qp", op_destroy_qp}, {"connect", op_connect},
		{"modify", op_modify},       {"query_qp", op_query_qp},
		{"post_recv", op_post_recv}, {"post_send", op_post_send},
		{"poll", op_poll},           {"counters", op_counters},
		{"create_srq", op_create_srq}, {"destroy_srq", op_destroy_srq},
		{"alloc_mw", op_alloc_mw},   {"dealloc_mw", op_dealloc_mw},
		{"run", op_run},             {"finish", op_finish},
	};

	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++)
		if (!strcmp(operation, operations[i].name)) {
			operations[i].function();
			return;
		}
	fail(EOPNOTSUPP, "'%.40s' is not an operation", operation);
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), DEVICE))
			context = ibv_open_device(list[i]);
	pd = context ? ibv_alloc_pd(context) : NULL;
	cq = pd ? ibv_create_cq(context, CQ_ENTRIES, NULL, NULL, 0) : NULL;
	if (!cq) {
		perror(DEVICE);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	int error;

	if (argc != 2) {
		fprintf(stderr, "usage: agent PORT\n");
		return 2;
	}
	error = link_add(DEVICE, NETDEV);
	if (error) {
		fprintf(stderr, "rxe on %s: %s\n", NETDEV, strerror(error));
		return 1;
	}
	open_device();
	line_open(argv[1]);
	line_serve(serve, ring_doorbells);
	return 0;
}
