# SPDX-License-Identifier: Apache-2.0
"""Diagnose a machine, a serve script, a server's log or a running server, and say what to do.

Facts are gathered first, and checks are functions of them: a check's result does not depend on where it runs.
"""
