# SPDX-License-Identifier: Apache-2.0
"""Judge whether a machine can serve a recipe: read the facts once, compare them with what the recipe needs, name the commands that help."""
