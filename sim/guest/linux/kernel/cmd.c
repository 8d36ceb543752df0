// SPDX-License-Identifier: GPL-2.0
/*
 * The control queue.
 *
 * A command that sleeps waits for its interrupt. One in atomic context looks for its answer itself.
 * A command whose issuer has given up is freed when the device gives it back.
 */
#include <linux/delay.h>
#include <linux/refcount.h>
#include "rocinante.h"

/* The device is taken for broken if it answers later than this. */
#define ROC_TIMEOUT_S		60
#define ROC_SPIN_US		2000000

struct roc_cmd {
	refcount_t ref;
	struct completion done;
	bool answered;
	int result;
	roc_cmd_done call;
	void *owner;
	size_t request_size;
	size_t response_size;
	u8 *request;
	u8 *response;
	/* Each in a cache line of its own: the device writes one of them. */
	u8 data[] ____cacheline_aligned;
};

struct roc_cmd *roc_cmd_alloc(size_t request_size, size_t response_size, gfp_t gfp)
{
	size_t first = ALIGN(request_size + 1, SMP_CACHE_BYTES);
	struct roc_cmd *cmd = kzalloc(sizeof(*cmd) + first + response_size + 1, gfp);

	if (!cmd)
		return NULL;
	refcount_set(&cmd->ref, 1);
	init_completion(&cmd->done);
	cmd->request_size = request_size;
	cmd->response_size = response_size;
	cmd->request = cmd->data;
	cmd->response = cmd->data + first;
	return cmd;
}

void roc_cmd_free(struct roc_cmd *cmd)
{
	if (cmd && refcount_dec_and_test(&cmd->ref))
		kfree(cmd);
}

static int roc_cmd_result(struct roc_cmd *cmd, u32 written)
{
	if (!written)
		return -EIO;
	if (cmd->response[0] != VIRTIO_RDMA_RESPONSE_OK)
		return -EINVAL;
	return written == cmd->response_size + 1 ? 0 : -EIO;
}

/* Take the answers that are there. The lock is held, but not while somebody is told. */
static void roc_cmd_reap(struct roc_dev *rdev, unsigned long *flags)
	__must_hold(&rdev->cvq_lock)
{
	struct roc_cmd *cmd;
	u32 written;

	while ((cmd = virtqueue_get_buf(rdev->cvq, &written))) {
		cmd->result = roc_cmd_result(cmd, written);
		cmd->answered = true;
		spin_unlock_irqrestore(&rdev->cvq_lock, *flags);
		if (cmd->call)
			cmd->call(cmd->owner, cmd->result);
		complete(&cmd->done);
		roc_cmd_free(cmd);
		wake_up(&rdev->cvq_room);
		spin_lock_irqsave(&rdev->cvq_lock, *flags);
	}
}

void roc_cmd_interrupt(struct virtqueue *vq)
{
	struct roc_dev *rdev = vq->vdev->priv;
	unsigned long flags;

	spin_lock_irqsave(&rdev->cvq_lock, flags);
	do {
		virtqueue_disable_cb(vq);
		roc_cmd_reap(rdev, &flags);
	} while (!virtqueue_enable_cb(vq) && !virtqueue_is_broken(vq));
	spin_unlock_irqrestore(&rdev->cvq_lock, flags);
}

static int roc_cmd_add(struct roc_dev *rdev, struct roc_cmd *cmd, u8 command, const void *request,
		       size_t size)
{
	struct scatterlist out, in, *sgs[] = { &out, &in };
	unsigned long flags;
	int err = -EIO;

	cmd->request[0] = command;
	if (size)
		memcpy(cmd->request + 1, request, size);
	cmd->answered = false;
	sg_init_one(&out, cmd->request, size + 1);
	sg_init_one(&in, cmd->response, cmd->response_size + 1);
	spin_lock_irqsave(&rdev->cvq_lock, flags);
	if (!rdev->dead) {
		err = virtqueue_add_sgs(rdev->cvq, sgs, 1, 1, cmd, GFP_ATOMIC);
		if (!err) {
			refcount_inc(&cmd->ref); /* the queue's */
			virtqueue_kick(rdev->cvq);
		}
	}
	spin_unlock_irqrestore(&rdev->cvq_lock, flags);
	return err;
}

static bool roc_cmd_has_room(struct roc_dev *rdev)
{
	unsigned long flags;
	bool found;

	spin_lock_irqsave(&rdev->cvq_lock, flags);
	found = rdev->dead || rdev->cvq->num_free >= 2;
	spin_unlock_irqrestore(&rdev->cvq_lock, flags);
	return found;
}

/*
 * Carry out a command. 0; -EINVAL when the device refuses it; -EIO when it does not answer as it
 * should, or not at all.
 */
int roc_exec(struct roc_dev *rdev, u8 command, const void *request, size_t request_size,
	     void *response, size_t response_size)
{
	struct roc_cmd *cmd = roc_cmd_alloc(request_size, response_size, GFP_KERNEL);
	int err;

	might_sleep();
	if (!cmd)
		return -ENOMEM;
	while ((err = roc_cmd_add(rdev, cmd, command, request, request_size)) == -ENOSPC)
		if (!wait_event_timeout(rdev->cvq_room, roc_cmd_has_room(rdev),
					ROC_TIMEOUT_S * HZ))
			break;
	if (err)
		goto out;
	if (!wait_for_completion_timeout(&cmd->done, ROC_TIMEOUT_S * HZ)) {
		dev_err(&rdev->vdev->dev, "command %u is not answered\n", command);
		roc_fatal(rdev);
		err = -EIO;
		goto out;
	}
	err = cmd->result;
	if (!err && response_size)
		memcpy(response, cmd->response + 1, response_size);
out:
	roc_cmd_free(cmd);
	return err;
}

/* The same where nobody may sleep. */
int roc_exec_atomic(struct roc_dev *rdev, u8 command, const void *request, size_t request_size,
		    void *response, size_t response_size)
{
	struct roc_cmd *cmd = roc_cmd_alloc(request_size, response_size, GFP_ATOMIC);
	unsigned long flags;
	int err, us;

	if (!cmd)
		return -ENOMEM;
	err = roc_cmd_add(rdev, cmd, command, request, request_size);
	if (err)
		goto out;
	for (us = 0; us < ROC_SPIN_US; us++) {
		spin_lock_irqsave(&rdev->cvq_lock, flags);
		if (!rdev->dead)
			roc_cmd_reap(rdev, &flags);
		spin_unlock_irqrestore(&rdev->cvq_lock, flags);
		if (completion_done(&cmd->done))
			break;
		udelay(1);
	}
	if (!completion_done(&cmd->done)) {
		roc_fatal(rdev);
		err = -EIO;
		goto out;
	}
	err = cmd->result;
	if (!err && response_size)
		memcpy(response, cmd->response + 1, response_size);
out:
	roc_cmd_free(cmd);
	return err;
}

/* Give a command to the device and go on. The issuer keeps the command, and may not touch it. */
int roc_cmd_post(struct roc_dev *rdev, struct roc_cmd *cmd, u8 command, const void *request,
		 size_t size, roc_cmd_done done, void *owner)
{
	cmd->call = done;
	cmd->owner = owner;
	reinit_completion(&cmd->done);
	return roc_cmd_add(rdev, cmd, command, request, size);
}

void roc_cmd_init(struct roc_dev *rdev)
{
	spin_lock_init(&rdev->cvq_lock);
	init_waitqueue_head(&rdev->cvq_room);
}

/* The device has been reset, or is gone: end what waits. */
void roc_cmd_exit(struct roc_dev *rdev)
{
	unsigned long flags;
	struct roc_cmd *cmd;

	spin_lock_irqsave(&rdev->cvq_lock, flags);
	rdev->dead = true;
	while (rdev->cvq && (cmd = virtqueue_detach_unused_buf(rdev->cvq))) {
		cmd->result = -EIO;
		spin_unlock_irqrestore(&rdev->cvq_lock, flags);
		if (cmd->call)
			cmd->call(cmd->owner, -EIO);
		complete(&cmd->done);
		roc_cmd_free(cmd);
		spin_lock_irqsave(&rdev->cvq_lock, flags);
	}
	spin_unlock_irqrestore(&rdev->cvq_lock, flags);
	wake_up_all(&rdev->cvq_room);
}
