# SPDX-License-Identifier: Apache-2.0
"""Import patches into the stack from a git clone, a quilt series, patch files or a folder of edited sources."""
