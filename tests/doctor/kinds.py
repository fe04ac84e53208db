# SPDX-License-Identifier: Apache-2.0
"""The same server in each kind of file that people start one with: it runs eagerly, and that has to be found at its line."""

from collections.abc import Mapping

MODEL = "openai/gpt-oss-120b"
EAGER: Mapping[str, tuple[str, int]] = {
    "eugr.yaml": (
        f"""recipe_version: "1"
model: {MODEL}
container: vllm-node
defaults:
  port: 8000
  gpu_memory_utilization: 0.7
env:
  VLLM_LOGGING_LEVEL: DEBUG
command: |
  vllm serve {{model}} \\
    --port {{port}} \\
    --hf-overrides '{{{{"a": 1}}}}' \\
    --enforce-eager \\
    --gpu-memory-utilization {{gpu_memory_utilization}}
""",
        13,
    ),
    "sparkrun.yaml": (
        f"""recipe_version: "2"
model: {MODEL}
runtime: vllm-distributed
defaults:
  max_model_len: 131072
  enforce_eager: true
""",
        6,
    ),
    "deployment.yaml": (
        f"""apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      volumes:
        - name: shm
          emptyDir: {{medium: Memory}}
      containers:
        - name: vllm
          image: vllm/vllm-openai:latest
          args:
            - --model
            - {MODEL}
            - --enforce-eager
          volumeMounts:
            - {{name: shm, mountPath: /dev/shm}}
""",
        15,
    ),
    "values.yaml": (
        f"""servingEngineSpec:
  modelSpec:
    - name: oss
      modelURL: {MODEL}
      vllmConfig:
        maxModelLen: 4096
        extraArgs: ["--enforce-eager"]
""",
        7,
    ),
    "config.yaml": (
        f"""macros:
  base: vllm serve --port ${{PORT}}
models:
  oss:
    cmd: |
      ${{base}} {MODEL}
      --enforce-eager
""",
        7,
    ),
    "vllm.service": (f"[Service]\nExecStart=/opt/v/bin/vllm serve {MODEL} \\\n    --enforce-eager\n", 3),
    "vllm.container": (
        f"[Container]\nImage=vllm/vllm-openai:latest\nPodmanArgs=--ipc=host\nExec=--model {MODEL} --enforce-eager\n",
        4,
    ),
    "serve.py": (f'import subprocess\nsubprocess.run(["vllm", "serve", "{MODEL}", "--enforce-eager"])\n', 2),
    "uv.sh": (f"uv run --with vllm vllm serve {MODEL} --enforce-eager\n", 1),
    "module.sh": (f"python3 -m vllm.entrypoints.openai.api_server \\\n  --model {MODEL} --enforce-eager\n", 2),
    "ray.sh": (f"ray start --head\nray exec c.yaml 'vllm serve {MODEL} --enforce-eager'\n", 2),
    "ssh.sh": (f"ssh spark-2 'VLLM_LOGGING_LEVEL=DEBUG vllm serve {MODEL} --enforce-eager'\n", 1),
    "docker.sh": (f"docker run --ipc=host --gpus all vllm/vllm-openai:latest \\\n  --model {MODEL} --enforce-eager\n", 2),
}
