# SPDX-License-Identifier: Apache-2.0
"""What knows nothing of forks: errors, files that appear whole, bounded HTTP, child processes, text."""
