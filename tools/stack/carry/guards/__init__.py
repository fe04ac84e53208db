# SPDX-License-Identifier: Apache-2.0
"""Guards: judge what code beside the patches relies on upstream: anchors, copied files, and attributes that it replaces."""
