# SPDX-License-Identifier: Apache-2.0
"""Build, publish, verify and find images of the stack."""
