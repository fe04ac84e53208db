# SPDX-License-Identifier: Apache-2.0
"""Settings of a recipe for several nodes: variables that each node sets, and what is made of them."""

from collections.abc import Mapping
from types import MappingProxyType

from stack.deploy.recipes import RANK

NODES: Mapping[str, str] = MappingProxyType(
    {
        RANK: "which node this is: 0 is the one that clients ask",
        "NODE_ADDRESS": "this node's own address on the fast network",
        "HEAD_ADDRESS": "the address of node 0 on the fast network, the same on all nodes",
        "INTERFACE": "the network interface that has NODE_ADDRESS (`ip -brief address`)",
        "HCA": "both RDMA devices of that port, as `rocep1s0f0,roceP2p1s0f0` (`ibdev2netdev`, or `rdma link`)",
    }
)
"""The variables of a recipe for several nodes, with their meanings."""
ON_NODES: Mapping[str, str] = MappingProxyType(
    {
        "VLLM_HOST_IP": "${NODE_ADDRESS}",
        "NCCL_SOCKET_IFNAME": "${INTERFACE}",
        "GLOO_SOCKET_IFNAME": "${INTERFACE}",
        "NCCL_IB_HCA": "${HCA}",
    }
)
"""The environment of a recipe for several nodes."""
BETWEEN = ("--nnodes", "--node-rank", "--master-addr")
"""Flags that name the nodes to each other."""
