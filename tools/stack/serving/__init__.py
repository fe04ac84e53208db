# SPDX-License-Identifier: Apache-2.0
"""Serving by recipes: the commands that start servers, and the compose files that do."""
