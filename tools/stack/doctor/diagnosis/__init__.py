# SPDX-License-Identifier: Apache-2.0
"""From the rules that fit a log to its one root cause, its consequences, and a report of what no rule knows."""
