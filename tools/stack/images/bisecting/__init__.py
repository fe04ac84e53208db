# SPDX-License-Identifier: Apache-2.0
"""Find the upstream release or the patch that made a stack bad, by bisecting the stacks between a good and a bad one."""
