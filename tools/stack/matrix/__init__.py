# SPDX-License-Identifier: Apache-2.0
"""The jobs that show that a stack is good, as a list for the machines that a fork's maintainers have, and engines that run it."""
