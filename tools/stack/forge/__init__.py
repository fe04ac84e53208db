# SPDX-License-Identifier: Apache-2.0
"""Clients for the forges that host repositories, issues and pull requests."""
