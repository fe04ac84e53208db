# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a machine, a serve script, a server's log or a running server, and what to do about it.

Facts are gathered first, checks are functions of them: what a check says does not depend on where it runs.
"""
