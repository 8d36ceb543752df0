/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the kernel module and the provider for rdma-core tell each other.
 *
 * A virtqueue that a process uses is split in two. The kernel keeps the table of descriptors, so
 * that a process cannot give the device an address. Available and used ring are mapped into the
 * process, and so are the buffers that the descriptors name: these are memory of the process that
 * the kernel has pinned.
 *
 * Each buffer ("slot") of a queue of requests has several descriptors, one for each number of SGEs
 * that it may be posted with ("class"), because the device wants the length of an element to be
 * that of its request.
 */
#ifndef ROCINANTE_ABI_H
#define ROCINANTE_ABI_H

#include <linux/types.h>

#define ROCINANTE_UVERBS_ABI_VERSION	1

/* Bytes between which slots never cross; also the alignment of the memory that a process gives. */
#define ROCINANTE_PAGE_SIZE		4096
/* Bytes of an SGE, and of the slot of a completion. */
#define ROCINANTE_SGE_SIZE		16
#define ROCINANTE_CQE_STRIDE		64
/* Slots are multiples of this. */
#define ROCINANTE_WQE_ALIGN		64

#define ROCINANTE_HAS_FLUSH		1
#define ROCINANTE_HAS_ATOMIC_WRITE	2

/* A virtqueue, as a process maps it. */
struct rocinante_ring {
	__aligned_u64 key;	/* for mmap */
	__u32 size;		/* bytes to map */
	__u32 num;		/* entries of the rings, a power of two */
	__u32 used_offset;	/* of the used ring, the available ring lies at 0 */
	__u32 doorbell;		/* offset of the doorbell in what is mapped of these */
	__u32 queue;		/* what is written to the doorbell, 2 bytes */
	__u32 slots;
};

struct rocinante_alloc_ucontext_resp {
	__aligned_u64 doorbell_key;	/* for mmap */
	__u32 doorbell_size;		/* 0: doorbells are calls */
	__u32 max_sge;
	__u32 max_cqe;
	__u32 operations;	/* beyond those of every card: ROCINANTE_HAS_* */
};

struct rocinante_alloc_pd_resp {
	__u32 pdn;
	__u32 reserved;
};

struct rocinante_create_cq_req {
	__aligned_u64 buf;	/* rocinante_cq_size(room) bytes */
	__u32 room;		/* entries that it may be resized to */
	__u32 reserved;
};

struct rocinante_create_cq_resp {
	struct rocinante_ring ring;
	__u32 cqn;
	__u32 reserved;
};

/* Sizes of a queue are in ib_qp_cap and ib_srq_attr, as asked for. */
struct rocinante_create_qp_req {
	__aligned_u64 sq_buf;	/* rocinante_wq_size() bytes */
	__aligned_u64 rq_buf;	/* likewise; 0 with an SRQ */
};

struct rocinante_create_qp_resp {
	struct rocinante_ring sq;
	struct rocinante_ring rq;
};

struct rocinante_create_srq_req {
	__aligned_u64 buf;
	__u32 room;		/* requests that it may be resized to: so many slots */
	__u32 reserved;
};

struct rocinante_create_srq_resp {
	struct rocinante_ring ring;
	__u32 srqn;
	__u32 reserved;
};

/* An address vector, as it stands in a request (struct virtio_rdma_virtio_rdma_av). */
struct rocinante_create_ah_resp {
	__u8 av[43];
	__u8 reserved[5];
};

struct rocinante_alloc_mw_resp {
	__u32 reserved[2];
};

/* SGEs of a class: 0, 1, 2, 4 and so on; the last class has max_sge. */
static inline __u32 rocinante_class_sges(__u32 class, __u32 max_sge)
{
	__u32 sges = class ? 1u << (class - 1) : 0;

	return sges < max_sge ? sges : max_sge;
}

/* The first class for so many SGEs, which are not more than max_sge. */
static inline __u32 rocinante_class_of(__u32 num_sge)
{
	__u32 class = 0;

	while (class < 32 && (class ? 1u << (class - 1) : 0) < num_sge)
		class++;
	return class;
}

static inline __u32 rocinante_classes(__u32 max_sge)
{
	return rocinante_class_of(max_sge) + 1;
}

/* Bytes of a slot with a fixed part of so many bytes. */
static inline __u32 rocinante_stride(__u32 fixed, __u32 max_sge)
{
	__u32 size = fixed + max_sge * ROCINANTE_SGE_SIZE;

	return (size + ROCINANTE_WQE_ALIGN - 1) / ROCINANTE_WQE_ALIGN * ROCINANTE_WQE_ALIGN;
}

/* Where a slot lies. */
static inline __u32 rocinante_slot_offset(__u32 slot, __u32 stride)
{
	__u32 page = ROCINANTE_PAGE_SIZE / stride;

	return slot / page * ROCINANTE_PAGE_SIZE + slot % page * stride;
}

/* Bytes of so many slots, whole pages. */
static inline __u32 rocinante_slots_size(__u32 slots, __u32 stride)
{
	__u32 page = ROCINANTE_PAGE_SIZE / stride;

	return (slots + page - 1) / page * ROCINANTE_PAGE_SIZE;
}

#endif /* ROCINANTE_ABI_H */
