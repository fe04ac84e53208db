# SPDX-License-Identifier: Apache-2.0
"""Bring up, check and update the server of one machine: the library behind `spark-stack`."""
