# SPDX-License-Identifier: Apache-2.0
"""What the doctor knows, as data: rules in TOML, their loader, and their patterns, which take linear time."""
