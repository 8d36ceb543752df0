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

#define DEVICE "rxe0"
#define NETDEV "eth0"
#define PORT 1
#define OBJECTS 4096
#define CQ_ENTRIES 8192
#define SGES 8
#define POLLED 1024
#define LARGEST_REGION (64u << 20)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
/* `address` is the one in SGEs and for peers; the memory itself is at mr->addr. */
static struct region {
	struct ibv_mr *mr;
	uint64_t address;
} regions[OBJECTS];
static struct ibv_qp *qps[OBJECTS];
static unsigned region_count, qp_count;

static struct region *region(uint64_t index)
{
	if (index >= region_count || !regions[index].mr)
		fail(EINVAL, "no MR %" PRIu64, index);
	return &regions[index];
}

static struct ibv_qp *queue_pair(void)
{
	uint64_t index = number("qp", UINT32_MAX);

	if (index >= qp_count || !qps[index])
		fail(EINVAL, "no QP %" PRIu64, index);
	return qps[index];
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
static bool source_gid(const union ibv_gid *peer, int *index)
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
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
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
	qp = ibv_create_qp(pd, &attr);
	if (!qp)
		fail(errno, "ibv_create_qp: %s", strerror(errno));
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

static void op_connect(void)
{
	struct ibv_qp *qp = queue_pair();
	struct ibv_qp_attr attr = {
		.port_num = PORT,
		.qp_access_flags = flags(access_names, "access"),
		.path_mtu = named(mtu_names, word("path_mtu"), strlen(word("path_mtu"))),
		.dest_qp_num = number("dest_qpn", 0xffffff),
		.rq_psn = number("rq_psn", 0xffffff),
		.sq_psn = number("sq_psn", 0xffffff),
		.timeout = number_or("timeout", 31, 14),
		.retry_cnt = number_or("retry_cnt", 7, 7),
		.rnr_retry = number_or("rnr_retry", 7, 7),
		.min_rnr_timer = number_or("min_rnr_timer", 31, 12),
		.max_rd_atomic = number_or("max_rd_atomic", 128, 4),
		.max_dest_rd_atomic = number_or("max_dest_rd_atomic", 128, 4),
		.ah_attr = {.is_global = 1, .port_num = PORT, .grh = {.hop_limit = 64}},
	};
	union ibv_gid peer;
	int index;

	if (inet_pton(AF_INET6, word("dest_gid"), peer.raw) != 1)
		fail(EINVAL, "dest_gid %s is not a GID", word("dest_gid"));
	if (!source_gid(&peer, &index))
		fail(EADDRNOTAVAIL, "no own GID of the family of %s", word("dest_gid"));
	attr.ah_attr.grh.dgid = peer;
	attr.ah_attr.grh.sgid_index = index;
	modify(qp, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	modify(qp, &attr, IBV_QPS_RTR,
	       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	modify(qp, &attr, IBV_QPS_RTS,
	       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		       IBV_QP_MAX_QP_RD_ATOMIC);
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

/* The list of MR:OFFSET:LENGTH of the word `sge`; returns how many. Neither offset nor length is
 * checked: what the device says of wrong ones may be what is asked for. */
static int take_sges(struct ibv_sge *list)
{
	const char *text = word_or("sge", "");
	int count = 0;

	while (*text) {
		size_t size = strcspn(text, ",");
		char one[80];
		const char *at = one;
		struct region *from;

		if (count == SGES || size >= sizeof(one))
			fail(EINVAL, "more than %d SGEs, or a long one", SGES);
		memcpy(one, text, size);
		one[size] = 0;
		from = region(take_number(&at, ':', UINT32_MAX));
		list[count].lkey = from->mr->lkey;
		list[count].addr = from->address + take_number(&at, ':', UINT64_MAX);
		list[count++].length = take_number(&at, 0, UINT32_MAX);
		text += size + (text[size] == ',');
	}
	return count;
}

static void op_post_recv(void)
{
	struct ibv_sge sges[SGES];
	struct ibv_recv_wr *bad, request = {
		.wr_id = number("wr_id", UINT64_MAX),
		.sg_list = sges,
		.num_sge = take_sges(sges),
	};
	int error = ibv_post_recv(queue_pair(), &request, &bad);

	if (error)
		fail(error, "ibv_post_recv: %s", strerror(error));
	fputs("ok", answer);
}

static void op_post_send(void)
{
	struct ibv_sge sges[SGES];
	struct ibv_send_wr *bad, request = {
		.wr_id = number("wr_id", UINT64_MAX),
		.sg_list = sges,
		.num_sge = take_sges(sges),
		.opcode = named(opcode_names, word("opcode"), strlen(word("opcode"))),
		.send_flags = flags(send_flag_names, "flags"),
		.imm_data = htonl(number_or("imm", UINT32_MAX, 0)),
		.wr.rdma = {
			.remote_addr = number_or("remote_addr", UINT64_MAX, 0),
			.rkey = number_or("rkey", UINT32_MAX, 0),
		},
	};
	int error = ibv_post_send(queue_pair(), &request, &bad);

	if (error)
		fail(error, "ibv_post_send: %s", strerror(error));
	fputs("ok", answer);
}

static void put_completion(const struct ibv_wc *wc)
{
	bool good = wc->status == IBV_WC_SUCCESS, imm = wc->wc_flags & IBV_WC_WITH_IMM;

	fprintf(answer, "%" PRIu64 ":%s:%s:%u:%u:%u:%u:%s", wc->wr_id,
		name_of(status_names, wc->status), good ? name_of(wc_opcode_names, wc->opcode) : "",
		good ? wc->byte_len : 0, good && imm ? ntohl(wc->imm_data) : 0, wc->qp_num,
		good ? wc->src_qp : 0, good && imm ? "WITH_IMM" : "");
}

/* n completions, or those that there are after timeout_ms. */
static void op_poll(void)
{
	const struct timespec pause = {.tv_nsec = 100000};
	struct timespec now, end;
	struct ibv_wc found[POLLED];
	int wanted = number_or("n", POLLED, 1), count = 0;
	uint64_t timeout = number_or("timeout_ms", 3600000, 0);

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += timeout / 1000;
	end.tv_nsec += timeout % 1000 * 1000000;
	for (;;) {
		int more = ibv_poll_cq(cq, wanted - count, found + count);

		if (more < 0)
			fail(EIO, "ibv_poll_cq: %d", more);
		count += more;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (count == wanted ||
		    (now.tv_sec - end.tv_sec) * 1000000000ll + now.tv_nsec >= end.tv_nsec)
			break;
		if (!more)
			nanosleep(&pause, NULL);
	}
	fputs("ok wc=", answer);
	for (int i = 0; i < count; i++) {
		if (i)
			putc(',', answer);
		put_completion(&found[i]);
	}
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
	line_serve(serve);
	return 0;
}
