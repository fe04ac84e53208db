# SPDX-License-Identifier: Apache-2.0
"""Compare the memory that a recipe takes with what this machine has available now."""

from stack.base.progress import Progress
from stack.deploy.recipes import Recipe


def demand(recipe: Recipe, tell: Progress, *, waits: bool) -> None:
    """Refuse a recipe that takes more memory than is available, or wait until there is enough.

    Raises:
        StackError: There is too little memory.

    """
    del recipe, tell, waits
