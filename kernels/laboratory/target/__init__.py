# SPDX-License-Identifier: Apache-2.0
"""The part of a validation archive that runs on a GPU machine without network: kernels, servers, their speeds."""
