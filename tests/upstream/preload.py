# SPDX-License-Identifier: Apache-2.0
"""Imported once by the process that all proofs here are forked from: other packages' modules, which take longest to import.

Nothing of an upstream may come in: its modules differ from tree to tree. A module that is missing is a proof's to report.
"""

import contextlib
import importlib
import os
import warnings

ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "GLOO_SOCKET_IFNAME": "lo",
    "FLASHINFER_CUDA_ARCH_LIST": "12.1a",
    # Proofs run beside each other, and sums are the same on every machine.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # vLLM sets these when it is imported, before torch is.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
"""Some of these are read when a module is imported, so they are set before."""

MODULES = (
    "torch",
    "torch._dynamo.backends.registry",
    "torch._inductor.codegen.cpp_wrapper_cpu",
    "torch._inductor.compile_fx",
    "torch._inductor.lowering",
    "torch.distributed",
    "torch.testing",
    "aiohttp",
    "cbor2",
    "cloudpickle",
    "compressed_tensors",
    "einops",
    "fastapi",
    "huggingface_hub",
    "llguidance",
    "msgspec",
    "networkx",
    "openai.types.chat",
    "openai.types.responses",
    "openai_harmony",
    "PIL.Image",
    "prometheus_client",
    "pydantic",
    "safetensors.torch",
    "setuptools",
    "tokenizers",
    "transformers.models.auto.image_processing_auto",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.processing_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.tokenization_utils_base",
    "zmq.asyncio",
)

os.environ.update(ENVIRONMENT)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
