/* SPDX-License-Identifier: GPL-2.0 */
/* Driver for virtio-rdma devices: what its files share. */
#ifndef ROCINANTE_H
#define ROCINANTE_H

#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/virtio_pci.h>
#include <linux/virtio_ring.h>
#include <linux/pci.h>
#include <linux/netdevice.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/ib_umem.h>
#ifdef ROC_HAVE_ITER
#include <rdma/iter.h>
#endif
#include <rdma/uverbs_ioctl.h>

#include "virtio_rdma.h"
#include "rocinante-abi.h"

#define ROC_MAX_VECTORS		16
#define ROC_EVENTS		64

struct roc_dev;

/* A virtqueue that this driver sets up itself: all but the control queue. */
struct roc_ring {
	struct roc_dev *rdev;
	u16 index;
	u16 vector;
	u32 num;
	bool enabled;
	/* Offset of the doorbell from the first one. */
	u32 doorbell;
	struct vring_desc *desc;
	dma_addr_t desc_dma;
	/* Available ring and used ring. */
	void *shared;
	dma_addr_t shared_dma;
	size_t shared_size;
	u32 used_offset;
	struct vring_avail *avail;
	struct vring_used *used;
	/* Of a process: what has been mapped, which then owns the memory. */
	struct roc_mmap *map;
	/* Positions of a ring that the kernel uses itself. */
	u16 next_avail;
	u16 last_used;
};

/* Memory that a process may map. */
struct roc_mmap {
	struct rdma_user_mmap_entry entry;
	struct roc_dev *rdev;
	/* Of a ring; freed with the entry, when neither process nor object needs it. */
	void *shared;
	size_t size;
	/* Of the doorbells. */
	bool doorbells;
};

struct roc_ucontext {
	struct ib_ucontext base;
	struct roc_mmap *doorbells;
};

struct roc_pd {
	struct ib_pd base;
	u32 pdn;
};

struct roc_ah {
	struct ib_ah base;
	struct virtio_rdma_av av;
};

/* A page list in memory of the device. */
struct roc_list {
	__le64 *first;
	dma_addr_t dma;
	size_t size;
	/* Of a list of two levels: the pages of the second one. */
	__le64 **second;
	u32 pages;
};

struct roc_mr {
	struct ib_mr base;
	u32 mrn;
	struct ib_umem *umem;
	struct roc_list list;
	/* Of a region of CREATE_MR. */
	u32 max_pages;
	u32 npages;
};

struct roc_mw {
	struct ib_mw base;
	u32 mwn;
};

struct roc_cq {
	struct ib_cq base;
	u32 cqn;
	struct roc_ring ring;
	struct ib_umem *umem;
	/* Slots of a CQ of the kernel. */
	void *buf;
	dma_addr_t buf_dma;
	size_t buf_size;
	u32 room;
	/* Guards the ring of a CQ of the kernel. */
	spinlock_t lock;
	/* Elements that are not given back after a smaller size was asked for. */
	u32 held;
	/* In the list of its vector; under the vector's lock, as is all below. */
	struct list_head node;
	bool armed;
	u16 armed_at;
	/* Its user is told now; somebody has found something more to tell meanwhile. */
	bool telling;
	bool missed;
	/* The interrupt that has looked at it last. */
	u32 pass;
	/* The command that arms a CQ of the kernel; what to ask for when it comes back, or 0. */
	struct roc_cmd *arm;
	bool arming;
	u32 arm_again;
};

/* Send queue, receive queue or SRQ. */
struct roc_wq {
	struct roc_ring ring;
	u32 fixed;
	u32 max_wr;
	u32 max_sge;
	u32 slots;
	u32 stride;
	/* Descriptors of each slot. */
	u32 classes;
	struct ib_umem *umem;
	/* Slots of a queue of the kernel, and those that are free, of an SRQ. */
	void *buf;
	dma_addr_t buf_dma;
	size_t buf_size;
	u16 *free;
	u32 num_free;
	spinlock_t lock; /* of the ring and of what is free */
};

struct roc_xrcd {
	struct ib_xrcd base;
	u32 xrcdn;
};

struct roc_srq {
	struct ib_srq base;
	u32 srqn;
	struct roc_wq wq;
};

struct roc_qp {
	struct ib_qp base;
	u32 qpn;
	enum ib_qp_state state;
	enum ib_sig_type sig_type;
	struct ib_qp_cap cap;
	struct roc_wq sq;
	struct roc_wq rq;
	/* Events look it up. */
	refcount_t ref;
	struct completion unused;
};

struct roc_vector {
	struct roc_dev *rdev;
	int irq;
	struct virtqueue *holder;
	bool own;
	spinlock_t lock; /* of the list and of what its CQs are armed for */
	struct list_head cqs;
	/* Counts interrupts. */
	u32 pass;
	char name[32];
};

struct roc_dev {
	struct ib_device base;
	struct virtio_device *vdev;
	struct pci_dev *pdev;
	struct device *dma;
	struct list_head node;
	u8 mac[ETH_ALEN];
	struct net_device *netdev;
	struct mutex netdev_lock; /* of "netdev" */

	/* The device configuration, as the device has it. */
	struct virtio_rdma_config config;
	u32 max_cq;
	u32 max_qp;
	u32 gid_tbl_len;

	/* Registers, beside those that virtio-pci uses. */
	struct virtio_pci_common_cfg __iomem *common;
	void __iomem *queue_reset;
	void __iomem *notify;
	u32 notify_multiplier;
	u32 notify_len;
	phys_addr_t notify_pa;
	bool notify_mappable;
	void __iomem *counters;
	u32 num_counters;
	u32 num_qp_counters;
	struct mutex select_lock; /* of registers behind a selector */
	u32 max_queue_size;

	struct virtqueue *cvq;
	spinlock_t cvq_lock; /* of the control queue */
	wait_queue_head_t cvq_room;
	/* It answers no more: reset, removed or broken. */
	bool dead;

	struct roc_vector vectors[ROC_MAX_VECTORS];
	int num_vectors;
	int event_vector;

	struct roc_ring events;
	bool events_up;
	struct virtio_rdma_event *event_buf;
	dma_addr_t event_dma;
	struct work_struct event_work;
	struct work_struct fatal_work;

	struct xarray qps;
	struct xarray cqs;
	struct xarray srqs;
	bool registered;
};

#define to_rdev(dev) container_of(dev, struct roc_dev, base)
#define to_rctx(ctx) container_of(ctx, struct roc_ucontext, base)
#define to_rpd(pd) container_of(pd, struct roc_pd, base)
#define to_rah(ah) container_of(ah, struct roc_ah, base)
#define to_rmr(mr) container_of(mr, struct roc_mr, base)
#define to_rmw(mw) container_of(mw, struct roc_mw, base)
#define to_rcq(cq) container_of(cq, struct roc_cq, base)
#define to_rxrcd(xrcd) container_of(xrcd, struct roc_xrcd, base)
#define to_rsrq(srq) container_of(srq, struct roc_srq, base)
#define to_rqp(qp) container_of(qp, struct roc_qp, base)

/* FLUSH needs access flags that older kernels refuse. Its numbers are the device's everywhere. */
#ifdef ROC_HAVE_FLUSH
#define ROC_ACCESS_FLUSH	(VIRTIO_RDMA_ACCESS_FLUSH_GLOBAL | \
				 VIRTIO_RDMA_ACCESS_FLUSH_PERSISTENT)
#define ROC_CAP_PLACEMENT	(VIRTIO_RDMA_DEVICE_CAP_FLUSH_GLOBAL | \
				 VIRTIO_RDMA_DEVICE_CAP_FLUSH_PERSISTENT | \
				 VIRTIO_RDMA_DEVICE_CAP_ATOMIC_WRITE)
#else
#define ROC_ACCESS_FLUSH	0
#define ROC_CAP_PLACEMENT	VIRTIO_RDMA_DEVICE_CAP_ATOMIC_WRITE
#endif

static inline bool roc_has(const struct roc_dev *rdev, unsigned int feature)
{
	return virtio_has_feature(rdev->vdev, feature);
}

/* Index of the pair behind a queue pair's number. */
static inline u32 roc_pair(const struct roc_dev *rdev, u32 qpn)
{
	return qpn & (roundup_pow_of_two(rdev->max_qp) - 1);
}

/* pci.c */
int roc_pci_init(struct roc_dev *rdev);
void roc_pci_exit(struct roc_dev *rdev);
int roc_queue_enable(struct roc_ring *ring);
int roc_queue_reset(struct roc_dev *rdev, u16 index);
int roc_own_vectors(struct roc_dev *rdev, struct virtqueue **holders, int num);
void roc_return_vectors(struct roc_dev *rdev);

/* ring.c */
int roc_ring_init(struct roc_dev *rdev, struct roc_ring *ring, u16 index, u32 entries, u16 vector);
int roc_ring_enable(struct roc_ring *ring);
void roc_ring_clear(struct roc_ring *ring);
int roc_ring_restart(struct roc_ring *ring);
void roc_ring_exit(struct roc_ring *ring);
void roc_ring_fill(struct roc_ring *ring, u32 count);
void roc_ring_kick(struct roc_ring *ring);
void roc_ring_arm(struct roc_ring *ring, u16 seen, bool solicited);
int roc_ring_share(struct roc_ring *ring, struct ib_ucontext *ucontext,
		   struct rocinante_ring *told, u32 slots);
int roc_umem_slots(struct roc_dev *rdev, u64 addr, u32 slots, u32 stride, struct ib_umem **umem,
		   void (*set)(void *owner, u32 slot, dma_addr_t addr), void *owner, int access);

static inline u16 roc_ring_used(const struct roc_ring *ring)
{
	return le16_to_cpu((__force __le16)READ_ONCE(ring->used->idx));
}

/* cmd.c */
struct roc_cmd;
typedef void (*roc_cmd_done)(void *owner, int result);
void roc_cmd_init(struct roc_dev *rdev);
void roc_cmd_exit(struct roc_dev *rdev);
void roc_cmd_interrupt(struct virtqueue *vq);
int roc_exec(struct roc_dev *rdev, u8 command, const void *request, size_t request_size,
	     void *response, size_t response_size);
int roc_exec_atomic(struct roc_dev *rdev, u8 command, const void *request, size_t request_size,
		    void *response, size_t response_size);
struct roc_cmd *roc_cmd_alloc(size_t request_size, size_t response_size, gfp_t gfp);
void roc_cmd_free(struct roc_cmd *cmd);
int roc_cmd_post(struct roc_dev *rdev, struct roc_cmd *cmd, u8 command, const void *request,
		 size_t size, roc_cmd_done done, void *owner);

#define roc_call(rdev, command, request) \
	roc_exec(rdev, command, &(request), sizeof(request), NULL, 0)
#define roc_call2(rdev, command, request, response) \
	roc_exec(rdev, command, &(request), sizeof(request), &(response), sizeof(response))

/* verbs.c */
extern const struct ib_device_ops roc_ops;
int roc_alloc_ucontext(struct ib_ucontext *ibctx, struct ib_udata *udata);
void roc_dealloc_ucontext(struct ib_ucontext *ibctx);
int roc_mmap(struct ib_ucontext *ibctx, struct vm_area_struct *vma);
void roc_mmap_free(struct rdma_user_mmap_entry *entry);
int roc_respond(struct ib_udata *udata, void *response, size_t size);

/* port.c */
int roc_query_port(struct ib_device *ibdev, u32 port, struct ib_port_attr *attr);
int roc_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey);
int roc_add_gid(const struct ib_gid_attr *attr, void **context);
int roc_del_gid(const struct ib_gid_attr *attr, void **context);
int roc_netdev_init(void);
void roc_netdev_exit(void);
void roc_netdev_add(struct roc_dev *rdev);
void roc_netdev_del(struct roc_dev *rdev);

/* ah.c */
int roc_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *attr, struct ib_udata *udata);
int roc_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr);
int roc_destroy_ah(struct ib_ah *ibah, u32 flags);
void roc_ah_to_device(const struct rdma_ah_attr *from, struct virtio_rdma_ah_attr *to);
void roc_ah_from_device(struct ib_device *ibdev, const struct virtio_rdma_ah_attr *from,
			struct rdma_ah_attr *to);

/* mr.c */
struct ib_mr *roc_get_dma_mr(struct ib_pd *ibpd, int access);
struct ib_mr *roc_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 virt_addr, int access,
			      struct ib_udata *udata);
struct ib_mr *roc_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start, u64 length,
				u64 virt_addr, int access, struct ib_pd *ibpd,
				struct ib_udata *udata);
int roc_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);
struct ib_mr *roc_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type, u32 max_num_sg);
int roc_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int nents, unsigned int *offset);
int roc_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
int roc_dealloc_mw(struct ib_mw *ibmw);

/* cq.c */
int roc_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr, struct ib_udata *udata);
int roc_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int roc_resize_cq(struct ib_cq *ibcq, int cqe, struct ib_udata *udata);
int roc_poll_cq(struct ib_cq *ibcq, int count, struct ib_wc *wc);
int roc_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);
irqreturn_t roc_cq_interrupt(int irq, void *data);

/* qp.c */
int roc_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
int roc_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
int roc_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		 struct ib_qp_init_attr *init);
int roc_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
int roc_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int roc_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);

/* wqe.c */
int roc_wq_init(struct roc_dev *rdev, struct roc_wq *wq, u16 index, struct ib_udata *udata,
		u64 buf);
int roc_wq_size(struct roc_dev *rdev, struct roc_wq *wq, u32 fixed, u32 max_wr, u32 max_sge,
		bool user);
int roc_wq_restart(struct roc_wq *wq);
void roc_wq_exit(struct roc_wq *wq);
int roc_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr, const struct ib_send_wr **bad);
int roc_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad);
int roc_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad);

/* srq.c */
int roc_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr, struct ib_udata *udata);
int roc_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
		   struct ib_udata *udata);
int roc_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int roc_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);
int roc_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);
int roc_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);

/* event.c */
int roc_events_init(struct roc_dev *rdev);
void roc_events_exit(struct roc_dev *rdev);
irqreturn_t roc_event_interrupt(int irq, void *data);
void roc_fatal(struct roc_dev *rdev);
void roc_fatal_work(struct work_struct *work);

/* stats.c */
struct rdma_hw_stats *roc_alloc_port_stats(struct ib_device *ibdev, u32 port);
int roc_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats, u32 port, int index);

#endif /* ROCINANTE_H */
