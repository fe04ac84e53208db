# SPDX-License-Identifier: Apache-2.0
"""Logs of releases from 0.6 to 0.31 that started and answered: written anew, in the form of what each release prints."""

from collections.abc import Mapping

V0 = """INFO 10-22 01:47:57 api_server.py:528] vLLM API server version {version}
INFO 10-22 01:47:57 api_server.py:529] args: Namespace(host=None, port=8000, model='{model}', kv_cache_dtype='auto', max_model_len=4096)
WARNING 10-22 01:48:00 config.py:1668] Casting torch.bfloat16 to torch.float16.
WARNING 10-22 01:48:00 arg_utils.py:957] Chunked prefill is enabled by default for models with max_model_len > 32K. Currently, chunked \
prefill might not work with some features or models. If you encounter any issues, please disable chunked prefill.
INFO 10-22 01:48:02 llm_engine.py:237] Initializing an LLM engine (v{version}) with config: model='{model}', speculative_config=None, \
dtype=torch.float16, max_seq_len=4096, quantization=None, enforce_eager=False, kv_cache_dtype=auto, device_config=cuda
INFO 10-22 01:48:03 selector.py:224] Cannot use FlashAttention-2 backend for Volta and Turing GPUs.
INFO 10-22 01:48:03 selector.py:115] Using XFormers backend.
INFO 10-22 01:48:05 model_runner.py:1056] Starting to load model {model}...
Loading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]
Loading safetensors checkpoint shards: 100% Completed | 2/2 [00:03<00:00,  1.90s/it]
INFO 10-22 01:48:11 model_runner.py:1067] Loading model weights took 14.9888 GB
INFO 10-22 01:48:14 gpu_executor.py:122] # GPU blocks: 27904, # CPU blocks: 2048
INFO 10-22 01:48:14 gpu_executor.py:126] Maximum concurrency for 4096 tokens per request: 109.00x
INFO 10-22 01:48:17 model_runner.py:1395] Capturing the model for CUDA graphs. This may lead to unexpected consequences if the model is \
not static. To run the model in eager mode, set 'enforce_eager=True' or use '--enforce-eager' in the CLI.
INFO 10-22 01:48:17 model_runner.py:1399] CUDA graphs can take additional 1~3 GiB memory per GPU. If you are running out of memory, \
consider decreasing `gpu_memory_utilization` or enforcing eager mode.
INFO 10-22 01:48:30 model_runner.py:1523] Graph capturing finished in 13 secs.
INFO 10-22 01:48:30 launcher.py:19] Available routes are:
INFO:     Started server process [1]
INFO:     Application startup complete.
INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)
INFO 10-22 01:49:00 metrics.py:349] Avg prompt throughput: 11.2 tokens/s, Avg generation throughput: 41.0 tokens/s, Running: 1 reqs, \
Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 0.1%, CPU KV cache usage: 0.0%.
INFO:     127.0.0.1:41234 - "POST /v1/chat/completions HTTP/1.1" 200 OK
"""
V1 = """INFO 03-19 07:08:30 [__init__.py:239] Automatically detected platform cuda.
INFO 03-19 07:08:31 [api_server.py:1034] vLLM API server version {version}
INFO 03-19 07:08:44 [config.py:1444] Using max model len 40960
INFO 03-19 07:08:44 [config.py:2197] Chunked prefill is enabled with max_num_batched_tokens=2048.
WARNING 03-19 07:08:45 [utils.py:2382] We must use the `spawn` multiprocessing start method. Overriding VLLM_WORKER_MULTIPROC_METHOD to \
'spawn'. See the documentation for more information. Reason: CUDA is initialized
INFO 03-19 07:08:47 [core.py:58] Initializing a V1 LLM engine (v{version}) with config: model='{model}', speculative_config=None, \
dtype=torch.bfloat16, max_seq_len=40960, tensor_parallel_size=2, quantization=awq_marlin, enforce_eager=False, kv_cache_dtype=auto
(VllmWorker rank=1 pid=2171) INFO 03-19 07:08:52 [shm_broadcast.py:258] vLLM message queue communication handle: Handle(remote_addr_ipv6=False)
(VllmWorker rank=0 pid=2154) INFO 03-19 07:08:52 [utils.py:931] Found nccl from library libnccl.so.2
(VllmWorker rank=0 pid=2154) WARNING 03-19 07:08:52 [custom_all_reduce.py:145] Custom allreduce is disabled because your platform lacks GPU \
P2P capability or P2P test failed. To silence this warning, specify disable_custom_all_reduce=True explicitly.
(VllmWorker rank=0 pid=2154) INFO 03-19 07:08:53 [parallel_state.py:967] rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, TP rank 0
(VllmWorker rank=0 pid=2154) INFO 03-19 07:08:53 [cuda.py:215] Using Flash Attention backend on V1 engine.
(VllmWorker rank=0 pid=2154) WARNING 03-19 07:08:53 [topk_topp_sampler.py:63] FlashInfer is not available. Falling back to the PyTorch-native \
implementation of top-p & top-k sampling. For the best performance, please install FlashInfer.
(VllmWorker rank=0 pid=2154) INFO 03-19 07:08:53 [gpu_model_runner.py:1128] Starting to load model {model}...
Loading safetensors checkpoint shards: 100% Completed | 5/5 [00:09<00:00,  1.93s/it]
(VllmWorker rank=0 pid=2154) INFO 03-19 07:09:04 [loader.py:429] Loading weights took 9.70 seconds
(VllmWorker rank=0 pid=2154) INFO 03-19 07:09:05 [gpu_model_runner.py:1140] Model loading took 9.0970 GB and 11.2 seconds
(VllmWorker rank=0 pid=2154) INFO 03-19 07:09:30 [monitor.py:33] torch.compile takes 28.77 s in total
INFO 03-19 07:09:31 [kv_cache_utils.py:537] GPU KV cache size: 121,344 tokens
INFO 03-19 07:09:31 [kv_cache_utils.py:540] Maximum concurrency for 40,960 tokens per request: 2.96x
Capturing CUDA graph shapes: 100%|██████████| 67/67 [00:15<00:00,  4.38it/s]
(VllmWorker rank=0 pid=2154) INFO 03-19 07:09:50 [gpu_model_runner.py:1608] Graph capturing finished in 19 secs, took 1.31 GiB
INFO 03-19 07:09:50 [core.py:162] init engine (profile, create kv cache, warmup model) took 45.10 seconds
WARNING 03-19 07:09:51 [config.py:1028] Default sampling parameters have been overridden by the model's Hugging Face generation config \
recommended from the model creator. If this is not intended, please relaunch vLLM instance with `--generation-config vllm`.
INFO 03-19 07:09:52 [launcher.py:34] Route: /health, Methods: GET
INFO:     Application startup complete.
INFO 03-19 07:10:20 [loggers.py:80] Avg prompt throughput: 5.1 tokens/s, Avg generation throughput: 38.2 tokens/s, Running: 1 reqs, \
Waiting: 0 reqs, GPU KV cache usage: 0.4%, Prefix cache hit rate: 0.0%
INFO:     127.0.0.1:41234 - "POST /v1/completions HTTP/1.1" 200 OK
"""
PROCESSES = """INFO 10-21 09:11:20 [__init__.py:216] Automatically detected platform cuda.
(APIServer pid=1) INFO 10-21 09:11:22 [api_server.py:1839] vLLM API server version {version}
(APIServer pid=1) INFO 10-21 09:11:22 [utils.py:233] non-default args: {{'model_tag': '{model}', 'model': '{model}', 'max_model_len': 65536}}
(APIServer pid=1) `torch_dtype` is deprecated! Use `dtype` instead!
(APIServer pid=1) INFO 10-21 09:11:30 [model.py:1510] Using max model len 65536
(EngineCore_DP0 pid=188893) INFO 10-21 09:11:35 [core.py:77] Initializing a V1 LLM engine (v{version}) with config: model='{model}', \
speculative_config=None, dtype=torch.bfloat16, max_seq_len=65536, quantization=mxfp4, enforce_eager=False, kv_cache_dtype=auto, \
structured_outputs_config=StructuredOutputsConfig(backend='auto', disable_fallback=False)
/usr/local/lib/python3.12/dist-packages/torch/cuda/__init__.py:283: UserWarning: Found GPU0 NVIDIA GB10 which is of cuda capability 12.1. \
Minimum and Maximum cuda capability supported by this version of PyTorch is (8.0) - (12.0)
[Gloo] Rank 0 is connected to 0 peer ranks. Expected number of connected peer ranks is : 0
(EngineCore_DP0 pid=188893) INFO 10-21 09:11:38 [gpu_model_runner.py:2602] Starting to load model {model}...
(EngineCore_DP0 pid=188893) INFO 10-21 09:11:38 [cuda.py:366] Using Flash Attention backend on V1 engine.
(EngineCore_DP0 pid=188893) INFO 10-21 09:11:38 [mxfp4.py:93] Using Marlin backend
Loading safetensors checkpoint shards: 100% Completed | 3/3 [00:08<00:00,  2.90s/it]
(EngineCore_DP0 pid=188893) WARNING 10-21 09:11:47 [marlin_utils_fp4.py:196] Your GPU does not have native support for FP4 computation but \
FP4 quantization is being used. Weight-only FP4 compression will be used leveraging the Marlin kernel.
(EngineCore_DP0 pid=188893) INFO 10-21 09:11:48 [gpu_model_runner.py:2653] Model loading took 13.7194 GiB and 9.912312 seconds
(EngineCore_DP0 pid=188893) INFO 10-21 09:11:55 [backends.py:164] Directly load the compiled graph(s) for dynamic shape from the cache, took 2.717 s
(EngineCore_DP0 pid=188893) INFO 10-21 09:11:56 [monitor.py:34] torch.compile takes 7.14 s in total
(EngineCore_DP0 pid=188893) INFO 10-21 09:11:57 [gpu_worker.py:298] Available KV cache memory: 16.23 GiB
(EngineCore_DP0 pid=188893) INFO 10-21 09:11:57 [kv_cache_utils.py:1087] GPU KV cache size: 425,424 tokens
(EngineCore_DP0 pid=188893) INFO 10-21 09:11:57 [kv_cache_utils.py:1091] Maximum concurrency for 65,536 tokens per request: 6.49x
Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|██████████| 67/67 [00:04<00:00, 15.18it/s]
Capturing CUDA graphs (decode, FULL): 100%|██████████| 35/35 [00:01<00:00, 17.82it/s]
(EngineCore_DP0 pid=188893) INFO 10-21 09:12:04 [gpu_model_runner.py:3480] Graph capturing finished in 7 secs, took 0.95 GiB
(EngineCore_DP0 pid=188893) INFO 10-21 09:12:04 [core.py:210] init engine (profile, create kv cache, warmup model) took 25.99 seconds
(APIServer pid=1) INFO 10-21 09:12:14 [loggers.py:147] Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 26589
(APIServer pid=1) INFO:     Started server process [1]
(APIServer pid=1) INFO:     Application startup complete.
(APIServer pid=1) INFO:     127.0.0.1:41234 - "POST /v1/chat/completions HTTP/1.1" 200 OK
(APIServer pid=1) INFO:     127.0.0.1:41235 - "POST /v1/embeddings HTTP/1.1" 404 Not Found
[rank0]:[W1021 16:55:27.345399482 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not called before program exit, \
which can leak resources. For more info, please see https://pytorch.org/docs/stable/distributed.html#shutdown (function operator())
"""
BANNER = """(APIServer pid=1) INFO 07-14 16:39:41 [utils.py:302]        █     █     █▄   ▄█
(APIServer pid=1) INFO 07-14 16:39:41 [utils.py:302]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}
(APIServer pid=1) INFO 07-14 16:39:41 [utils.py:302]   █▄█▀ █     █     █     █  model   {model}
(APIServer pid=1) INFO 07-14 16:39:41 [utils.py:238] non-default args: {{'model_tag': '{model}', 'model': '{model}', 'max_model_len': 8192, \
'kv_cache_dtype': 'fp8', 'gpu_memory_utilization': 0.85}}
(APIServer pid=1) WARNING 07-14 16:39:41 [envs.py:1710] Unknown vLLM environment variable detected: VLLM_VERSION
(APIServer pid=1) WARNING 07-14 16:39:41 [envs.py:1710] Unknown vLLM environment variable detected: VLLM_FLASH_ATTN_SRC_DIR
(APIServer pid=1) INFO 07-14 16:39:46 [model.py:1554] Using max model len 8192
(EngineCore pid=77) INFO 07-14 16:39:55 [core.py:109] Initializing a V1 LLM engine (v{version}) with config: model='{model}', \
speculative_config=SpeculativeConfig(method='mtp', model='{model}', num_spec_tokens=2), dtype=torch.bfloat16, max_seq_len=8192, \
quantization=modelopt_fp4, enforce_eager=False, kv_cache_dtype=fp8
(EngineCore pid=77) INFO 07-14 16:40:02 [gpu_model_runner.py:4736] Starting to load model {model}...
(EngineCore pid=77) INFO 07-14 16:40:02 [cuda.py:482] Using FLASHINFER attention backend out of potential backends: ['FLASHINFER', 'TRITON_ATTN'].
(EngineCore pid=77) INFO 07-14 16:40:02 [nvfp4.py:210] Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['FLASHINFER_CUTLASS', 'MARLIN'].
(EngineCore pid=77) WARNING 07-14 16:40:02 [kv_cache.py:109] Using KV cache scaling factor 1.0 for fp8_e4m3. If this is unintended, verify that \
k/v_scale scaling factors are properly set in the checkpoint.
(EngineCore pid=77) INFO 07-14 16:40:02 [weight_utils.py:880] Auto-prefetch is disabled because the filesystem (EXT4) is not a recognized network FS.
Loading safetensors checkpoint shards: 100% Completed | 3/3 [00:27<00:00,  9.13s/it]
(EngineCore pid=77) INFO 07-14 16:40:40 [gpu_model_runner.py:4821] Model loading took 20.11 GiB memory and 35.120000 seconds
(EngineCore pid=77) INFO 07-14 16:41:10 [monitor.py:53] torch.compile took 21.20 s in total
(EngineCore pid=77) INFO 07-14 16:41:15 [gpu_worker.py:436] Available KV cache memory: 70.02 GiB
(EngineCore pid=77) INFO 07-14 16:41:15 [kv_cache_utils.py:1319] GPU KV cache size: 1,204,224 tokens
(EngineCore pid=77) INFO 07-14 16:41:15 [kv_cache_utils.py:1324] Maximum concurrency for 8,192 tokens per request: 147.00x
(EngineCore pid=77) 2026-07-14 16:41:20,100 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Autotuning process starts ...
(EngineCore pid=77) 2026-07-14 16:41:25,100 - INFO - autotuner.py:262 - flashinfer.jit: [Autotuner]: Autotuning process ends
Capturing CUDA graphs (decode, FULL): 100%|██████████| 35/35 [00:01<00:00, 17.82it/s]
(EngineCore pid=77) INFO 07-14 16:41:40 [gpu_model_runner.py:6047] Graph capturing finished in 9 secs, took 0.95 GiB
(EngineCore pid=77) INFO 07-14 16:41:41 [core.py:284] init engine (profile, create kv cache, warmup model) took 60.15 seconds
(APIServer pid=1) WARNING 07-14 16:41:42 [model.py:1402] Default vLLM sampling parameters have been overridden by the model's own.
(APIServer pid=1) INFO 07-14 16:41:43 [api_server.py:580] Starting vLLM server on http://0.0.0.0:8000
(APIServer pid=1) INFO:     Application startup complete.
(APIServer pid=1) INFO 07-14 16:42:20 [loggers.py:271] Engine 000: Avg prompt throughput: 5.1 tokens/s, Avg generation throughput: 61.0 tokens/s, \
Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.4%, Prefix cache hit rate: 12.0%
(APIServer pid=1) INFO 07-14 16:42:20 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.16, Accepted throughput: 26.91 tokens/s
(APIServer pid=1) INFO:     127.0.0.1:41234 - "POST /v1/chat/completions HTTP/1.1" 200 OK
"""
HEALTHY: Mapping[str, str] = {
    version: form.format(version=version, model=model)
    for form, versions in (
        (
            V0,
            {
                "0.6.3.post1": "meta-llama/Llama-3.1-8B-Instruct",
                "0.6.6": "Qwen/Qwen2.5-7B-Instruct",
                "0.7.2": "Qwen/Qwen2.5-7B",
            },
        ),
        (V1, {"0.8.0": "Qwen/QwQ-32B-AWQ", "0.8.5.post1": "Qwen/Qwen3-32B-AWQ", "0.9.2": "Qwen/Qwen3-32B-AWQ"}),
        (PROCESSES, {"0.10.2": "openai/gpt-oss-20b", "0.11.2": "openai/gpt-oss-20b"}),
        (
            BANNER,
            {
                "0.17.1": "nvidia/Qwen3-30B-A3B-NVFP4",
                "0.20.2rc1.dev9+g01d4d1ad3": "nvidia/Qwen3.6-35B-A3B-NVFP4",
                "0.26.0": "nvidia/Qwen3.6-35B-A3B-NVFP4",
                "0.31.0": "nvidia/Qwen3.6-35B-A3B-NVFP4",
            },
        ),
    )
    for version, model in versions.items()
}
"""The logs by their releases."""
