# SPDX-License-Identifier: Apache-2.0
"""A gpt-oss that is small enough for a CPU, and whose answers are known in advance. It is generated here, nothing is downloaded.

These modules run in the validation's environment (`tools/stack/validation/requirements.txt`) and import nothing of `stack`.
"""
