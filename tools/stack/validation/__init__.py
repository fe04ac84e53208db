# SPDX-License-Identifier: Apache-2.0
"""What proves the stack: numerics of its kernels, a server that runs, its speed, its quality. Each suite hands back cases."""
