/* Work requests, their completions, and memory windows. */
#include "requests.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "line.h"
#include "names.h"
#include "objects.h"

#define POLLED 1024

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

void op_post_recv(void)
{
	struct ibv_sge sges[SGES];
	struct ibv_recv_wr *bad, request = {
		.wr_id = number("wr_id", UINT64_MAX),
		.sg_list = sges,
		.num_sge = take_sges(sges),
	};
	bool shared = word_or("srq", NULL);
	int error = shared ? ibv_post_srq_recv(shared_queue(), &request, &bad)
			   : ibv_post_recv(queue_pair(), &request, &bad);

	if (error)
		fail(error, "ibv_post_recv: %s", strerror(error));
	fputs("ok", answer);
}

static struct ibv_mw *windows[OBJECTS];
static unsigned window_count;

static struct ibv_mw *window(void)
{
	uint64_t index = number("mw", UINT32_MAX);

	if (index >= window_count || !windows[index])
		fail(EINVAL, "no MW %" PRIu64, index);
	return windows[index];
}

void op_alloc_mw(void)
{
	struct ibv_mw *mw;

	if (window_count == OBJECTS)
		fail(ENOMEM, "%d MWs", OBJECTS);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	if (!mw)
		fail(errno, "ibv_alloc_mw: %s", strerror(errno));
	windows[window_count] = mw;
	fprintf(answer, "ok mw=%u", window_count++);
}

void op_dealloc_mw(void)
{
	int error = ibv_dealloc_mw(window());

	if (error)
		fail(error, "ibv_dealloc_mw: %s", strerror(error));
	windows[number("mw", UINT32_MAX)] = NULL;
	fputs("ok", answer);
}

/* Binds a window to all of a region; its new key is the answer. */
static void bind_window(struct ibv_qp *qp, struct ibv_send_wr *request)
{
	struct region *to = region(number("mr", UINT32_MAX));
	struct ibv_mw *mw = window();
	struct ibv_send_wr *bad;
	int error;

	request->bind_mw.mw = mw;
	request->bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	request->bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = to->mr,
		.addr = to->address,
		.length = to->mr->length,
		.mw_access_flags = flags(access_names, "access"),
	};
	error = ibv_post_send(qp, request, &bad);
	if (error)
		fail(error, "ibv_post_send: %s", strerror(error));
	mw->rkey = request->bind_mw.rkey;
	fprintf(answer, "ok rkey=%u", mw->rkey);
}

/* The address handle of a datagram's way; it stays for the next ones of the same way. */
static struct ibv_ah *address_handle(void)
{
	static struct handle {
		union ibv_gid gid;
		struct ibv_ah *ah;
	} handles[OBJECTS];
	static unsigned count;
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;

	take_way("ah.dest_gid", &attr);
	for (unsigned i = 0; i < count; i++)
		if (!memcmp(&handles[i].gid, &attr.grh.dgid, sizeof(attr.grh.dgid)))
			return handles[i].ah;
	if (count == OBJECTS)
		fail(ENOMEM, "%d address handles", OBJECTS);
	ah = ibv_create_ah(pd, &attr);
	if (!ah)
		fail(errno, "ibv_create_ah: %s", strerror(errno));
	handles[count++] = (struct handle){attr.grh.dgid, ah};
	return ah;
}

/* What only some operations have. */
static void take_operands(struct ibv_send_wr *request, enum ibv_qp_type type)
{
	uint64_t address = number_or("remote_addr", UINT64_MAX, 0);
	uint32_t rkey = number_or("rkey", UINT32_MAX, 0);

	if (type == IBV_QPT_UD) {
		request->wr.ud.ah = address_handle();
		request->wr.ud.remote_qpn = number("ah.dest_qpn", 0xffffff);
		request->wr.ud.remote_qkey = number("ah.qkey", UINT32_MAX);
		return;
	}
	switch (request->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		request->wr.atomic.remote_addr = address;
		request->wr.atomic.rkey = rkey;
		request->wr.atomic.compare_add = number("compare_add", UINT64_MAX);
		request->wr.atomic.swap = number_or("swap", UINT64_MAX, 0);
		break;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		request->invalidate_rkey = number("invalidate_rkey", UINT32_MAX);
		break;
	default:
		request->wr.rdma.remote_addr = address;
		request->wr.rdma.rkey = rkey;
	}
}

void op_post_send(void)
{
	struct ibv_sge sges[SGES];
	struct ibv_send_wr *bad, request = {
		.wr_id = number("wr_id", UINT64_MAX),
		.sg_list = sges,
		.num_sge = take_sges(sges),
		.opcode = named(opcode_names, word("opcode"), strlen(word("opcode"))),
		.send_flags = flags(send_flag_names, "flags"),
		.imm_data = htonl(number_or("imm", UINT32_MAX, 0)),
	};
	struct ibv_qp *qp = queue_pair();
	int error;

	if (request.opcode == IBV_WR_BIND_MW) {
		bind_window(qp, &request);
		return;
	}
	take_operands(&request, qp->qp_type);
	error = ibv_post_send(qp, &request, &bad);
	if (error)
		fail(error, "ibv_post_send: %s", strerror(error));
	fputs("ok", answer);
}

static void put_completion(const struct ibv_wc *wc)
{
	bool good = wc->status == IBV_WC_SUCCESS;
	unsigned with = good ? wc->wc_flags : 0;
	const char *between = "";

	fprintf(answer, "%" PRIu64 ":%s:%s:%u:%u:%u:%u:%u:", wc->wr_id,
		name_of(status_names, wc->status), good ? name_of(wc_opcode_names, wc->opcode) : "",
		good ? wc->byte_len : 0, with & IBV_WC_WITH_IMM ? ntohl(wc->imm_data) : 0,
		with & IBV_WC_WITH_INV ? wc->invalidated_rkey : 0, wc->qp_num,
		good ? wc->src_qp : 0);
	for (const struct name *flag = wc_flag_names; flag->name; flag++)
		if (with & flag->value) {
			fprintf(answer, "%s%s", between, flag->name);
			between = "+";
		}
}

/* n completions, or those that there are after timeout_ms; without any the doorbells are rung. */
void op_poll(void)
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
	if (timeout && !count)
		ring_doorbells();
	fputs("ok wc=", answer);
	for (int i = 0; i < count; i++) {
		if (i)
			putc(',', answer);
		put_completion(&found[i]);
	}
}
