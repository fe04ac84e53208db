# SPDX-License-Identifier: Apache-2.0
"""Serve by recipes: commands that start servers, compose files, and the speed limits of recipes."""
