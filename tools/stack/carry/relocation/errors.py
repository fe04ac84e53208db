# SPDX-License-Identifier: Apache-2.0
"""How every part says no."""


class Doubt(Exception):
    """The hunk does not plainly belong elsewhere: the conflict stays."""
