# SPDX-License-Identifier: Apache-2.0
"""A gpt-oss so small that a CPU serves it, whose answers are known beforehand; written here, nothing of it is downloaded.

These modules run in the validation's environment (`tools/stack/validation/requirements.txt`) and import nothing of `stack`.
"""
