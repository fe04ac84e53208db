# SPDX-License-Identifier: Apache-2.0
"""One archive that validates a stack on a GPU machine without network, and what runs there."""
