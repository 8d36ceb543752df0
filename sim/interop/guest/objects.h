/* What requests name by a number: regions, queue pairs, shared receive queues. */
#ifndef ROCINANTE_OBJECTS_H
#define ROCINANTE_OBJECTS_H

#include <infiniband/verbs.h>
#include <stdint.h>

#define PORT 1
#define OBJECTS 4096
#define SGES 8

/* `address` is the one in SGEs and for peers; the memory itself is at mr->addr. */
struct region {
	struct ibv_mr *mr;
	uint64_t address;
};

extern struct ibv_pd *pd;
extern struct ibv_cq *cq;

/* The object of that number, or of the number in the word `qp` or `srq`; without one the request
 * fails. */
struct region *region(uint64_t index);
struct ibv_qp *queue_pair(void);
struct ibv_srq *shared_queue(void);

/* Rings the doorbells of all queue pairs without posting anything. Soft-RoCE's requester stops
 * when 65 of its packets wait for the network device, and notes that afterwards. If the device has
 * sent all of them between the look and the note, nothing wakes it. */
void ring_doorbells(void);

/* The way to the GID in the word `key`, from an own one of its family. */
void take_way(const char *key, struct ibv_ah_attr *attr);

#endif
