# SPDX-License-Identifier: Apache-2.0
"""How fast a server is: llama-benchy's runs, checked, and compared with what was measured before."""
