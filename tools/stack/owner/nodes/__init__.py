# SPDX-License-Identifier: Apache-2.0
"""Prepare several machines to serve one model: read them, propose their network, apply it when asked, measure the link."""
