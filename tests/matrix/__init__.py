# SPDX-License-Identifier: Apache-2.0
"""The list of jobs and its engines."""
