/* Making a Soft-RoCE device. */
#ifndef ROCINANTE_LINK_H
#define ROCINANTE_LINK_H

/* Adds the RDMA device `name` of rdma_rxe on the network device `netdev`, as
 * `rdma link add NAME type rxe netdev NETDEV` does. Returns 0 or an errno. */
int link_add(const char *name, const char *netdev);

#endif
