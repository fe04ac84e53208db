# SPDX-License-Identifier: Apache-2.0
"""Share a verdict: reduce it to what others need, show it, and prepare an issue or a pull request. Nothing is sent from here."""
