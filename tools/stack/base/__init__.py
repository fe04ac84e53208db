# SPDX-License-Identifier: Apache-2.0
"""Code without any knowledge of forks: errors, safe files, bounded HTTP, child processes, text."""
