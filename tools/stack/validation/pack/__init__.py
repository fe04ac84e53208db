# SPDX-License-Identifier: Apache-2.0
"""Build and run an archive that validates a stack on a GPU machine without network."""
