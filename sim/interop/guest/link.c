/* Spec: Linux, include/uapi/rdma/rdma_netlink.h, RDMA_NLDEV_CMD_NEWLINK. */
#include "link.h"

#include <errno.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct request {
	struct nlmsghdr header;
	char attributes[256];
};

static void add_text(struct request *request, int type, const char *text)
{
	struct nlattr *at = (void *)((char *)request + NLMSG_ALIGN(request->header.nlmsg_len));

	at->nla_type = type;
	at->nla_len = NLA_HDRLEN + strlen(text) + 1;
	memcpy((char *)at + NLA_HDRLEN, text, strlen(text) + 1);
	request->header.nlmsg_len = NLMSG_ALIGN(request->header.nlmsg_len) + at->nla_len;
}

int link_add(const char *name, const char *netdev)
{
	struct request request = {
		.header = {
			.nlmsg_len = NLMSG_LENGTH(0),
			.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK),
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
		},
	};
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		char rest[512];
	} answer;
	int fd, result = 0;

	if (strlen(name) > 63 || strlen(netdev) > 63)
		return ENAMETOOLONG;
	add_text(&request, RDMA_NLDEV_ATTR_DEV_NAME, name);
	add_text(&request, RDMA_NLDEV_ATTR_LINK_TYPE, "rxe");
	add_text(&request, RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	if (fd < 0)
		return errno;
	if (send(fd, &request, request.header.nlmsg_len, 0) < 0 ||
	    recv(fd, &answer, sizeof(answer), 0) < 0)
		result = errno;
	else if (answer.header.nlmsg_type == NLMSG_ERROR)
		result = -answer.error.error;
	close(fd);
	return result;
}
