# SPDX-License-Identifier: Apache-2.0
"""For each check what makes it speak, with the words that it has to say then, and what leaves it quiet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stack.deploy import checkpoints, model_memory, recipes
from stack.doctor import logs, script, scripts
from stack.doctor.facts import VOCABULARY, Facts, Package, Ptxas, Python, Torch
from stack.doctor.finding import Severity
from stack.doctor.jit import Module, ModuleState
from stack.doctor.rules import Target
from stack.doctor.yardstick import Measure
from stack.model.verdict import Gpu, Machine
from stack.projects import Unknown

WRONG, NOTE, UNKNOWN = Severity.WRONG, Severity.NOTE, Severity.UNKNOWN


@dataclass(frozen=True, slots=True)
class Case:
    """What a check has to say of a subject: how bad, words of it, of its fix, and the line."""

    subject: Any
    severity: Severity
    what: str
    fix: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Cases:
    """What a check has to speak of, and a subject of which it has nothing to say."""

    loud: Sequence[Case]
    quiet: Any


# The machine: a Spark on which all is well, and what may be otherwise.
GB10 = Gpu("NVIDIA GB10", "12.1", None, "580.95.05")
H200 = Gpu("NVIDIA H200", "9.0", 150_000_000_000, "580.95.05")
SPARK = Machine("Linux 6.14", "aarch64", "Cortex-X925", 20, 128 * 10**9, (), (GB10,), "13.0")
MARKS = {"platform_system": "Linux", "python_version": "3.12", "platform_machine": "aarch64"}
INSTALLED = {
    "vllm": Package("0.32.0+sm121.g01234567", ("torch==2.13.0", "flashinfer-python==0.7.0.post1; platform_system == 'Linux'")),
    "flashinfer-python": Package("0.7.0.post1+sm121.g01234567", ("numpy", "apache-tvm-ffi>=0.1; extra == 'more'")),
    "torch": Package("2.13.0", ("nvidia-cudnn-cu13==9.20.0.48",)),
    "nvidia-cudnn-cu13": Package("9.20.0.48"),
    "numpy": Package("2.2"),
    "oss-harmony": Package("0.0.11"),
}
PYTHON = Python(Path("/venv/bin/python"), INSTALLED, MARKS, Torch("13.0", 92000), Path("/venv/site"))
WELL = Facts(
    SPARK,
    100 * 10**9,
    {"MAX_JOBS": "4", "FLASHINFER_CUDA_ARCH_LIST": "12.1a"},
    PYTHON,
    (Ptxas("CUDA's", "/cuda/bin/ptxas", True), Ptxas("Triton's", "/venv/ptxas-blackwell", True)),
    (Module("fused_moe_120", Path("/c/fused_moe_120"), "0.7.0.post1", "121a", ModuleState.WHOLE),),
    {},
    {"vllm": "0.32.0", "flashinfer-python": "0.7.0.post1"},
    0.7,
    is_nvidia=True,
)


def facts(**changed: Any) -> Facts:
    return replace(WELL, **changed)


def packages(**changed: Package | None) -> Facts:
    """Other packages, by names with underscores; None is not there."""
    found = {**INSTALLED, **{name.replace("_", "-"): package for name, package in changed.items()}}
    return facts(python=replace(PYTHON, packages={name: package for name, package in found.items() if package is not None}))


def module(state: ModuleState, name: str = "batch_decode", why: str = "since then") -> Facts:
    return facts(modules=(*WELL.modules, Module(name, Path(f"/c/{name}"), "0.7.0", "121a", state, why)))


def variables(**changed: str) -> Facts:
    return facts(environment={**WELL.environment, **changed})


OLDER = {"oss_harmony": None, "openai_harmony": Package("0.0.4")}
OFFLINE = replace(packages(**OLDER), environment={"HF_HUB_OFFLINE": "1"})
CACHED = replace(packages(**OLDER), environment={"TIKTOKEN_RS_CACHE_DIR": "/v/"})
MACHINE: Mapping[str, Cases] = {
    "gpu": Cases(
        [
            Case(facts(machine=replace(SPARK, gpus=())), WRONG, "nvidia-smi lists none", "driver"),
            Case(facts(machine=replace(SPARK, gpus=()), is_nvidia=False), NOTE, "no GPU"),
        ],
        WELL,
    ),
    "driver": Cases(
        [
            Case(facts(machine=replace(SPARK, cuda="12.8")), WRONG, "knows CUDA 12.8, torch is built for 13.0", "from 580 on"),
            Case(facts(python=replace(PYTHON, torch=Torch("13.1"))), NOTE, "PTX only", "CUDA 13.1"),
            Case(facts(machine=replace(SPARK, cuda=None)), UNKNOWN, "does not say which CUDA"),
        ],
        WELL,
    ),
    "torch": Cases(
        [
            Case(facts(python=replace(PYTHON, torch=Torch(None))), WRONG, "torch 2.13.0 is a build for CPUs", "torch==2.13.0"),
            Case(
                facts(python=Python(Path("/nowhere"), problem="it cannot be run (no)")), UNKNOWN, "/nowhere: it cannot be run"
            ),
            Case(packages(torch=None), UNKNOWN, "has no torch", "--python"),
        ],
        WELL,
    ),
    "cudnn": Cases(
        [
            Case(
                facts(python=replace(PYTHON, torch=Torch("13.0", 91300))),
                WRONG,
                "loads cuDNN 9.13.0",
                "nvidia-cudnn-cu13>=9.14",
            ),
            Case(facts(python=replace(PYTHON, torch=Torch("13.0", 91500))), WRONG, "9.20.0.48 is installed", "LD_LIBRARY_PATH"),
        ],
        WELL,
    ),
    "architectures": Cases(
        [
            Case(variables(FLASHINFER_CUDA_ARCH_LIST="12.1"), NOTE, "adds the suffix itself", "12.1a"),
            Case(
                replace(packages(flashinfer_python=Package("0.6.4")), environment={"FLASHINFER_CUDA_ARCH_LIST": "12.1"}),
                WRONG,
                "without `a` or `f` nothing of MXFP4 compiles",
                "FLASHINFER_CUDA_ARCH_LIST=12.1a",
            ),
            Case(variables(FLASHINFER_CUDA_ARCH_LIST="12.0a"), WRONG, "no code for this GPU, 12.1", "12.1a"),
            Case(variables(FLASHINFER_CUDA_ARCH_LIST="12.0f;12.1a"), WRONG, "is not an architecture", "blanks"),
            Case(variables(FLASHINFER_CUDA_ARCH_LIST=""), WRONG, "is not an architecture", "12.1a"),
        ],
        variables(FLASHINFER_CUDA_ARCH_LIST="9.0a 12.0f"),
    ),
    "ptxas": Cases(
        [
            Case(facts(ptxas=(Ptxas("CUDA's", "/old", False),)), WRONG, "CUDA's ptxas /old does not know sm_121a", "CUDA_HOME"),
            Case(facts(ptxas=(Ptxas("Triton's", "/t", False),)), WRONG, "Triton's ptxas /t does not", "TRITON_PTXAS_PATH"),
            Case(
                facts(ptxas=(Ptxas("CUDA's", "/old", False),), machine=replace(SPARK, gpus=(H200,))),
                NOTE,
                "for a DGX Spark",
                "12.9",
            ),
            Case(facts(ptxas=(Ptxas("CUDA's", "/old", None),)), UNKNOWN, "does not say"),
            Case(facts(ptxas=()), UNKNOWN, "there is no ptxas", "CUDA_HOME"),
        ],
        WELL,
    ),
    "jit-cache": Cases(
        [
            Case(module(ModuleState.ORPHANED), WRONG, "sources that no longer exist: batch_decode", "rm -r /c/batch_decode"),
            Case(
                module(ModuleState.HIDDEN, "a b"),
                NOTE,
                "although perhaps built from other sources, since since then: a b",
                "rm -r '/c/a b'",
            ),
            Case(module(ModuleState.CHANGED), NOTE, "compiled again at the next start", "delete nothing"),
            Case(module(ModuleState.UNFINISHED), NOTE, "not compiled completely: batch_decode"),
            Case(module(ModuleState.OTHER), NOTE, "never loaded, as since then: batch_decode", "rm -r /c/batch_decode"),
            Case(module(ModuleState.UNKNOWN), UNKNOWN, "batch_decode", "ninja"),
        ],
        WELL,
    ),
    "jobs": Cases(
        [
            Case(
                variables(MAX_JOBS="32"),
                WRONG,
                "100 GB are free: cicc is killed",
                "MAX_JOBS=2: 2 compilers take 10-20 GB, and the model needs",
            ),
            Case(
                variables(MAX_JOBS="16"),
                NOTE,
                "may take 80-160 GB",
                "MAX_JOBS=2: 2 compilers take 10-20 GB, and the model needs",
            ),
            Case(
                facts(environment={}),
                NOTE,
                "MAX_JOBS is not set: 22 compilers",
                "MAX_JOBS=2: 2 compilers take 10-20 GB, and the model needs",
            ),
            Case(variables(MAX_JOBS="many"), WRONG, "takes a number", "MAX_JOBS=2: "),
            Case(
                replace(variables(MAX_JOBS="32"), machine=replace(SPARK, gpus=())),
                NOTE,
                "cicc is killed",
                "MAX_JOBS=2: 2 compilers take 10-20 GB, and the model needs",
            ),
        ],
        WELL,
    ),
    "memory": Cases(
        [
            Case(facts(utilization=0.95), WRONG, "wants 122 GB, 100 GB", "free -h"),
            Case(facts(utilization=0.9, available=127 * 10**9), WRONG, "leaves 13 GB", "--gpu-memory-utilization 0.8"),
        ],
        WELL,
    ),
    "vocabulary": Cases(
        [
            Case(OFFLINE, WRONG, "downloads its vocabulary at the first start, and this machine is offline", "oss-harmony"),
            Case(replace(OFFLINE, environment={}), NOTE, "downloads its vocabulary", "TIKTOKEN_RS_CACHE_DIR"),
            Case(CACHED, WRONG, "/v/fb374d419588a4632f3f557e76b4b70aebbca790 cannot be read", VOCABULARY),
            Case(replace(CACHED, hashes={"TIKTOKEN_RS_CACHE_DIR": "0" * 64}), WRONG, "is not o200k_base.tiktoken", VOCABULARY),
            Case(variables(TIKTOKEN_ENCODINGS_BASE="/e"), WRONG, "/e/o200k_base.tiktoken cannot be read", "unset"),
            Case(packages(oss_harmony=None), UNKNOWN, "neither oss-harmony nor openai-harmony", "--python"),
        ],
        replace(CACHED, hashes={"TIKTOKEN_RS_CACHE_DIR": VOCABULARY}),
    ),
    "pins": Cases(
        [
            Case(
                packages(vllm=Package("0.33.0")),
                WRONG,
                "vllm 0.33.0 is installed, the stack stands on 0.32.0",
                "build wheels vllm",
            ),
            Case(packages(flashinfer_python=Package("0.7.0.post1")), NOTE, "is upstream's", "build wheels flashinfer"),
            Case(packages(vllm=None), UNKNOWN, "has no vllm", "--python"),
        ],
        WELL,
    ),
    "requirements": Cases(
        [
            Case(
                packages(nvidia_cudnn_cu13=Package("9.13.0")),
                WRONG,
                "torch 2.13.0 wants nvidia-cudnn-cu13==9.20.0.48, 9.13.0",
                "pip",
            ),
            Case(
                packages(torch=Package("2.14.0")),
                WRONG,
                "wants torch==2.13.0, 2.14.0 is installed",
                "pip install 'torch==2.13.0'",
            ),
            Case(packages(numpy=None), NOTE, "wanted and not installed: numpy"),
        ],
        WELL,
    ),
    "companions": Cases(
        [
            Case(
                packages(flashinfer_cubin=Package("0.6.4")),
                WRONG,
                "flashinfer-cubin 0.6.4 beside",
                "flashinfer-cubin==0.7.0.post1",
            ),
            Case(packages(flashinfer_jit_cache=Package("0.7.1+cu130")), WRONG, "refuses to be imported", "uninstall"),
        ],
        packages(flashinfer_jit_cache=Package("0.7.0.post1+cu130")),
    ),
}

# Scripts.
HERE = Target("NVIDIA DGX Spark", "12.1", 128 * 10**9, unified=True)
GONE = {
    "VLLM_LOGING_LEVEL": Unknown("VLLM_LOGING_LEVEL", "nothing reads it", "VLLM_LOGGING_LEVEL"),
    "VLLM_ODD": Unknown("VLLM_ODD", "nothing reads it"),
    "--max-modle-len": Unknown("--max-modle-len", "no such flag", "--max-model-len"),
}
SERVE = "vllm serve openai/gpt-oss-120b --host 127.0.0.1 --gpu-memory-utilization 0.7"


def sh(text: str, target: Target | None = HERE, name: str = "serve.sh") -> scripts.ScriptSubject:
    return scripts.ScriptSubject(script.parse(name, text), GONE, target)


def compose(service: str, *, command: str = f"[{', '.join(SERVE.split())}]") -> scripts.ScriptSubject:
    return sh(f"services:\n  vllm:\n    image: x\n{service}\n    command: {command}\n", name="compose.yml")


def measured(flags: str) -> scripts.ScriptSubject:
    """A command that is measured by a DGX Spark and gpt-oss-120b."""
    made = sh(f"vllm serve openai/gpt-oss-120b --gpu-memory-utilization 0.7 \\\n {flags}")
    return replace(
        made, measures=(Measure(HERE, model_memory.of_checkpoint(checkpoints.load("gpt-oss-120b"), HERE.capability)),)
    )


def image(name: str) -> scripts.ScriptSubject:
    return sh(f"services:\n  vllm:\n    image: {name}\n    command: [--model, m]\n", name="compose.yml")


CACHE = "    volumes: [cache:/root/.cache]"
TOLD = scripts.ScriptSubject(script.parse("a.sh", "export FLASHINFER_CUDA_ARCH_LIST=12.1\n"), GONE, HERE, "0.7.0.post1")
GOOD = sh(f"export VLLM_LOGGING_LEVEL=DEBUG FLASHINFER_CUDA_ARCH_LIST=12.1a MAX_JOBS=4\n{SERVE} \\\n  --max-model-len 4096\n")
ALONE = scripts.ScriptSubject(
    script.parse("a.sh", f"export VLLM_A=1 FLASHINFER_A=1\n{SERVE}\n"), {}, pinned=frozenset({"cutlass"})
)
HALF = "--gpu-memory-utilization 0.6"
RUN = "docker run -d -v c:/root/.cache -p"
TWO = """services:
  a:
    image: vllm/vllm-openai
    ports: ["127.0.0.1:8001:8000"]
    command: --model m {1}
  b:
    image: vllm/vllm-openai
    ports: ["127.0.0.1:8002:8000"]
    command: --model m {1}
{0}
"""
WITH_GPUS = "services:\n" + "".join(
    f"  s{at}: {{{given}, image: '{name}', command: [--model, m]}}\n"
    for at, (given, name) in enumerate(
        (
            ("gpus: all", "vllm/vllm-openai"),
            ("runtime: nvidia", "vllm/vllm-openai"),
            ("devices: [nvidia.com/gpu=all]", "vllm/vllm-openai"),
            ("deploy: {resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu]}]}}}", "vllm/vllm-openai"),
            ("environment: [NVIDIA_VISIBLE_DEVICES=all]", "vllm/vllm-openai"),
            ("extends: {service: s0}", "vllm/vllm-openai"),
            ("restart: always", "vllm/vllm-openai-cpu"),
            ("restart: always", "vllm/vllm-openai-rocm"),
        )
    )
)
LOST = scripts.ScriptSubject(script.parse("a.sh", f"export VLLM_A=1\n{SERVE}\n"), None)
SCRIPTS: Mapping[str, Cases] = {
    "serves": Cases(
        [
            Case(sh("echo hello\n"), UNKNOWN, "no `vllm serve`", "name the file"),
            Case(
                sh("docker run \\\n vllm/vllm-openai:v0.32.0 vllm serve m"),
                WRONG,
                "starts `vllm serve` itself",
                "entry point",
                2,
            ),
            Case(
                sh("services:\n  a:\n    image: vllm/vllm-openai\n    command: vllm serve m\n", name="compose.yml"),
                WRONG,
                "takes `vllm` for the model",
                "leave `vllm serve` out",
                4,
            ),
            Case(
                sh("services:\n  a:\n    image: vllm/vllm-openai\n    command: [serve, m]\n", name="compose.yml"),
                WRONG,
                "takes `serve` for the model",
                "leave `serve` out",
                4,
            ),
            Case(sh("docker run \\\n vllm/vllm-openai serve m"), WRONG, "takes `serve`", "leave `serve` out", 2),
            Case(
                sh("services:\n  a:\n    build: ./server\n    command: [--port, '80']\n", name="compose.yml"),
                UNKNOWN,
                "stands in server/Dockerfile",
                "--script server/Dockerfile",
                3,
            ),
            Case(
                sh("services:\n  a:\n    build: {context: ., dockerfile: Own}\n", name="compose.yml"),
                UNKNOWN,
                "stands in Own",
                "--script Own",
                3,
            ),
        ],
        GOOD,
    ),
    "image": Cases(
        [
            Case(
                sh("docker run \\\n vLLM/vllm-openai:v0.32.0 --model m"),
                WRONG,
                "is not a name of an image",
                "vllm/vllm-openai",
                2,
            ),
            Case(image("vllm/vllm-openai:v0.32.0:latest"), WRONG, "at most one tag", "write NAME:TAG", 3),
            Case(image("vllm/vllm-openai:0.32.0"), NOTE, "no tag of that form", "write vllm/vllm-openai:v0.32.0, if", 3),
            Case(image("docker.io/vllm/vllm-openai:v0.32"), NOTE, "no tag of that form", "vllm-openai:v0.32.0, if", 3),
            Case(image("vllm/vllm-openai:lastest"), NOTE, "no tag of that form", "write vllm/vllm-openai:latest, if", 3),
        ],
        sh(
            "docker run vllm/vllm-openai --model m\ndocker run vllm/vllm-openai:$TAG --model m\n"
            "docker run vllm/vllm-openai:v0.8.5.post1 --model m\ndocker run vllm/vllm-openai:v0.15.0-cu130 --model m\n"
            "docker run vllm/vllm-openai:gptoss --model m\ndocker run localhost:5000/mine/x:1 a\ndocker run nvcr.io/nvidia/vllm:26.02-py3 a\n"
            f"docker run vllm/vllm-openai@sha256:{'0' * 64} --model m\n"
        ),
    ),
    "variables": Cases(
        [
            Case(
                sh("export VLLM_LOGING_LEVEL=DEBUG\n"),
                WRONG,
                "the nearest is VLLM_LOGGING_LEVEL",
                "write VLLM_LOGGING_LEVEL",
                1,
            ),
            Case(sh(f"VLLM_ODD=1 {SERVE}"), WRONG, "it has no similar name", "take it out", 1),
            Case(
                sh("#\nexport VLLM_MXFP4_BACKEND=CUTLASS"),
                WRONG,
                "read by nothing: never vLLM's own",
                "--moe-backend=marlin",
                2,
            ),
            Case(sh("VLLM_ODD=1\nexport VLLM_ODD\n"), WRONG, "VLLM_ODD", "take it out", 1),
            Case(sh("VLLM_ODD=1\n", name="serve.env"), WRONG, "VLLM_ODD", "take it out", 1),
            Case(sh("docker run \\\n -e VLLM_ODD=1 x\n"), WRONG, "VLLM_ODD", "take it out", 2),
            Case(sh("FROM x\nENV A=1 \\\n    VLLM_ODD=1\n", name="Dockerfile"), WRONG, "VLLM_ODD", "take it out", 3),
            Case(compose(f"{CACHE}\n    environment:\n      VLLM_ODD: 1"), WRONG, "VLLM_ODD", "take it out", 6),
            Case(compose(f"{CACHE}\n    environment:\n      - VLLM_ODD=1"), WRONG, "VLLM_ODD", "take it out", 6),
            Case(LOST, UNKNOWN, "pinned sources cannot be had", "stack fetch"),
            Case(ALONE, UNKNOWN, "its variables of flashinfer, which is not pinned", "pin flashinfer in pins.toml"),
            Case(ALONE, UNKNOWN, "its variables of vllm, which is not pinned", "pin vllm in pins.toml"),
        ],
        # A script's own variable, which no program gets to see.
        sh(f"VLLM_ODD=image\nexport VLLM_LOGGING_LEVEL=DEBUG\n{SERVE}\n"),
    ),
    "flags": Cases(
        [
            Case(sh(f"{SERVE} --max-modle-len 1"), WRONG, "the nearest is --max-model-len", "write --max-model-len", 1),
            Case(sh(f"{SERVE} \\\n --mxfp4-backend CUTLASS"), WRONG, "does not start with it", "--moe-backend=marlin", 2),
            Case(sh(f"{SERVE} --mxfp4_layers=moe"), WRONG, "--mxfp4-layers", "quantization-config", 1),
            Case(sh(f'A=(\n  --mxfp4-backend x\n)\n{SERVE} "${{A[@]}}"'), WRONG, "--mxfp4-backend", "--moe-backend", 2),
            Case(
                compose(CACHE, command="[vllm, serve, m/x, '--dtype auto']"),
                WRONG,
                "gets '--dtype auto' as one word",
                "--dtype=auto",
                5,
            ),
            Case(LOST, UNKNOWN, "pinned sources cannot be had", "stack fetch"),
            Case(ALONE, UNKNOWN, "its flags: vllm is not pinned", "pin vllm in pins.toml"),
        ],
        GOOD,
    ),
    "eager": Cases(
        [
            Case(
                sh(f"{SERVE} \\\n  --enforce-eager"),
                WRONG,
                '26 tok/s in place of 59 (ai-muninn.com, "gpt-oss-120B on DGX Spark", part 2); another had 57.5 with it '
                '(kubis.ai, "GPT-OSS-120B: Topology Benchmark", 2026-03-22)',
                "take it out",
                2,
            ),
            Case(sh(f'docker run x bash -c "\n{SERVE} \\\n --enforce-eager"'), WRONG, "--enforce-eager", "take it out", 3),
            Case(
                compose(CACHE, command=f">\n      {SERVE}\n      --enforce-eager"), WRONG, "--enforce-eager", "take it out", 7
            ),
            Case(
                sh('FROM x\nCMD ["vllm", "serve", "m", \\\n  "--enforce-eager"]', name="Dockerfile"), WRONG, "eager", "out", 3
            ),
            Case(sh(f'docker run --entrypoint sh vllm/vllm -c "{SERVE} --enforce-eager"'), WRONG, "eager", "take it out", 1),
            Case(sh("docker run vllm/vllm-openai:latest --model m \\\n --enforce-eager"), WRONG, "eager", "take it out", 2),
            Case(sh(f"{SERVE} -O0"), WRONG, "optimization level 0", "take it out", 1),
            Case(
                sh(f'{SERVE} --compilation-config \'{{"cudagraph_mode": "NONE"}}\''),
                WRONG,
                "CUDA graphs off",
                "cudagraph_mode",
                1,
            ),
            Case(
                sh(f"python3 -m vllm.entrypoints.openai.api_server --enforce-eager --model m\n{SERVE}"),
                WRONG,
                "eager",
                "out",
                1,
            ),
        ],
        sh(f"VLLM_CPU_KVCACHE_SPACE=1 {SERVE} --enforce-eager"),
    ),
    "reasoning-parser": Cases(
        [
            Case(sh(f"{SERVE} --reasoning-parser deepseek_r1"), WRONG, "`content` stays null", "openai_gptoss", 1),
            Case(
                sh("vllm serve a/b --reasoning-parser=openai_gptoss"),
                WRONG,
                "reads harmony, which a/b does not",
                "take it out",
                1,
            ),
        ],
        sh(f"{SERVE} --reasoning-parser openai_gptoss\nvllm serve a/b --reasoning-parser qwen3\n"),
    ),
    "caches-deleted": Cases(
        [
            Case(
                sh(f"#\nrm -rf ~/.cache/flashinfer\n{SERVE}"),
                WRONG,
                "~/.cache/flashinfer is deleted at each start",
                "take it out",
                2,
            ),
            Case(sh(f"sudo rm -fr /root/.cache/vllm/torch_compile_cache\n{SERVE}"), WRONG, "deleted at each start", "take", 1),
            Case(sh(f"rm -r ~/.cache/{{vllm,flashinfer}}\n{SERVE}"), WRONG, "deleted at each start", "take", 1),
            Case(sh(f"find ~/.cache/flashinfer -delete\n{SERVE}"), WRONG, "deleted at each start", "take", 1),
        ],
        sh(f"rm -rf ~/.cache/pip /tmp/x\nls ~/.cache/flashinfer\n{SERVE}"),
    ),
    "gpu": Cases(
        [Case(compose(CACHE), NOTE, "the service names no GPU", "gpus: all", 3)],
        sh(f"{WITH_GPUS}\nx:\n  image: other\n", name="compose.yml"),
    ),
    "caches-kept": Cases(
        [
            Case(compose("    volumes: [models:/root/.cache/huggingface]"), NOTE, "no volume for ~/.cache", "/root/.cache", 3),
            Case(sh(f"docker run --rm --gpus all x {SERVE}"), NOTE, "no volume for ~/.cache", "/root/.cache", 1),
        ],
        sh(f"docker run --rm -v ~/.cache:/root/.cache x {SERVE}\n{SERVE}"),
    ),
    "shared-memory": Cases(
        [
            Case(sh(f"docker run \\\n x {SERVE}"), NOTE, "64 MB of /dev/shm: NVIDIA's own lines", "--ipc=host", 1),
            Case(sh("docker run x vllm serve m -tp 2", None), NOTE, "several ranks exchange data there", "--shm-size=16g", 1),
        ],
        sh(f"docker run --ipc=host x {SERVE}\ndocker run --shm-size 16g x {SERVE}\n{SERVE}"),
    ),
    "memory": Cases(
        [
            Case(
                sh("vllm serve m \\\n --gpu-memory-utilization 0.95"), WRONG, "leaves 6 GB", "--gpu-memory-utilization 0.8", 2
            ),
            Case(sh("U=${U:-0.95}\nvllm serve m --gpu-memory-utilization $U"), WRONG, "leaves 6 GB", "0.8", 2),
            Case(sh("vllm serve m > /tmp/log 2>&1"), WRONG, "0.92 leaves 10 GB", "0.8", 1),
            Case(
                compose(CACHE, command="[vllm, serve, m, --gpu-memory-utilization, '${U:-0.95}']"), WRONG, "leaves 6", "0.8", 5
            ),
            Case(sh("vllm serve m"), WRONG, "0.92 leaves 10 GB", "0.8", 1),
            Case(sh("vllm serve m", replace(HERE, available=50 * 10**9)), WRONG, "50 GB of the memory", "free -h", 1),
            Case(
                sh("vllm serve m --gpu-memory-utilization=0.95", None), NOTE, "too high where CPU and GPU share", "--recipe", 1
            ),
            Case(
                sh(f"vllm serve m {HALF} --port 8001 > a.log 2>&1 &\nvllm serve n --port 8002 \\\n {HALF}"),
                WRONG,
                "2 servers want 0.6 + 0.6 of one memory (lines 1, 3)",
                "at most 0.85 together",
                3,
            ),
            Case(
                sh(f"{RUN} 1:80 vllm/vllm-openai --model m {HALF}\n{RUN} 2:80 vllm/vllm-openai --model m {HALF}"),
                WRONG,
                "0.6 + 0.6",
                "",
                2,
            ),
            Case(sh(TWO.format("", HALF), name="compose.yml"), WRONG, "0.6 + 0.6 of one memory (lines 5, 9)", "", 9),
            Case(sh("vllm serve m --gpu-memory-utilization $SHARE"), UNKNOWN, "$SHARE", "write the number"),
        ],
        sh(
            "vllm serve m --gpu-memory-utilization 0.95\nvllm serve m --kv-cache-memory-bytes 1G",
            Target("H200", "9.0", 150 * 10**9, unified=False),
        ),
    ),
    "machine": Cases(
        [
            Case(measured("-tp 2"), WRONG, "it wants 2 GPUs", "--nnodes 2", 2),
            Case(measured("--max-num-seqs 2048"), NOTE, "for each of the 2048 of --max-num-seqs: most of them wait", "", 1),
        ],
        measured("--max-num-seqs 2"),
    ),
    "privileged": Cases(
        [
            Case(sh(f"docker run \\\n --privileged x {SERVE}"), WRONG, "has the whole machine", "--gpus all", 2),
            Case(compose(f"{CACHE}\n    privileged: true"), WRONG, "has the whole machine", "take it out", 5),
        ],
        compose(f"{CACHE}\n    privileged: false"),
    ),
    "exposed": Cases(
        [
            Case(sh("vllm serve m \\\n --host 0.0.0.0"), WRONG, "wants no key", "--host 127.0.0.1", 2),
            Case(sh("vllm serve m"), WRONG, "wants no key", "VLLM_API_KEY", 1),
            Case(sh("docker run \\\n -p 8000:8000 x vllm serve m"), WRONG, "wants no key", "127.0.0.1:8000:8000", 2),
            Case(sh("docker run --network host x \\\n vllm serve m"), WRONG, "wants no key", "VLLM_API_KEY", 2),
            Case(
                compose(f"{CACHE}\n    ports:\n      - 8000:8000", command="[vllm, serve, m]"), WRONG, "no key", "127.0.0.1", 6
            ),
            Case(
                compose(f"{CACHE}\n    ports:\n      - target: 8000\n        published: 8000", command="[vllm, serve, m]"),
                WRONG,
                "no key",
                "127.0.0.1",
                6,
            ),
            Case(sh("export VLLM_API_KEY=\nvllm serve m"), WRONG, "wants no key", "VLLM_API_KEY", 2),
            Case(sh("VLLM_API_KEY=${KEY:-} vllm serve m"), WRONG, "wants no key", "VLLM_API_KEY", 1),
            Case(sh("source .venv/bin/activate\nvllm serve m"), WRONG, "wants no key", "127.0.0.1", 2),
            Case(sh("source keys.sh\nvllm serve m"), UNKNOWN, "may stand in keys.sh", "127.0.0.1", 2),
            Case(sh(". ./keys\nvllm serve m"), UNKNOWN, "may stand in ./keys", "127.0.0.1", 2),
            Case(sh("docker run --env-file .env \\\n -p 80:80 x vllm serve m"), UNKNOWN, "may stand in .env", "127.0.0.1", 2),
            Case(sh("docker run --env-file=k \\\n -p 80:80 x vllm serve m"), UNKNOWN, "may stand in k", "127.0.0.1", 2),
            Case(
                compose(f"{CACHE}\n    env_file: .env\n    ports: ['80:80']", command="[vllm, serve, m]"),
                UNKNOWN,
                "may stand in .env",
                "127.0.0.1",
                6,
            ),
            Case(
                compose(f"{CACHE}\n    env_file: [{{path: .env}}, b]\n    ports: ['80:80']", command="[vllm, serve, m]"),
                UNKNOWN,
                "stand in .env",
                "127.0.0.1",
                6,
            ),
            Case(sh("vllm serve m --api-key sk-1"), NOTE, "is seen by everyone who lists processes", "VLLM_API_KEY", 1),
        ],
        sh(
            "docker run -p 127.0.0.1:8000:8000 x vllm serve m --host 0.0.0.0\ndocker run x vllm serve m\n"
            'vllm serve m --host localhost\nvllm serve m --uds /run/v\nvllm serve "$@"\n'
            "docker run --network host -e VLLM_API_KEY x vllm serve m"
        ),
    ),
    "architectures": Cases(
        [
            Case(sh(f"export FLASHINFER_CUDA_ARCH_LIST=12.1\n{SERVE}"), WRONG, "plain sm_121 has no FP4", "12.1a", 1),
            Case(TOLD, NOTE, "this FlashInfer adds the suffix itself", "12.1a", 1),
            Case(sh("FLASHINFER_CUDA_ARCH_LIST=9.0a", name=".env"), WRONG, "no code for this GPU", "12.1a", 1),
        ],
        GOOD,
    ),
    "jobs": Cases(
        [
            Case(sh(f"export MAX_JOBS=32\n{SERVE}"), WRONG, "cicc is killed", "MAX_JOBS=2: 2 compilers take 10-20 GB", 1),
            Case(sh(f"export MAX_JOBS=16\n{SERVE}", None), NOTE, "80-160 GB", "MAX_JOBS=2: 2 compilers take 10-20 GB", 1),
        ],
        GOOD,
    ),
    "settings": Cases(
        [
            Case(sh(f"{SERVE} \\\n --tool-call-parser hermes"), WRONG, "another model's tool parser", "openai", 2),
            Case(sh(f"{SERVE} --moe-backend flashinfer_trtllm"), WRONG, "SM100 and SM103 only", "--moe-backend marlin", 1),
        ],
        GOOD,
    ),
}

# Logs: of real servers, and made from vLLM's format strings where this machine's cannot say such lines.
LOGS = Path(__file__).parents[1] / "deploy/logs"
PINNED = "0.32.0"


def log(name: str, recipe: str | None = None, pinned: str = PINNED) -> logs.LogSubject:
    return logs.read(LOGS / f"{name}.log", recipes.load(recipe) if recipe is not None else None, pinned)


def said(*lines: str, recipe: str | None = None) -> logs.LogSubject:
    """A log of a server that begins, with some more lines."""
    head = "(APIServer pid=1) INFO 01-17 10:00:00 [api_utils.py:347]   █▄█▀ █     █     █     █  version 0.32.0+sm121.g1\n"
    return logs.of(head + "".join(f"{line}\n" for line in lines), recipes.load(recipe) if recipe else None, PINNED)


def info(text: str, level: str = "INFO") -> str:
    return f"(EngineCore pid=7) {level} 01-17 10:00:09 [some.py:1] {text}"


ARGUMENTS = "non-default args: {'model_tag': 'openai/gpt-oss-120b', 'model': 'openai/gpt-oss-120b'"
# A real one, whose engine was sent a KILL.
KILLED = logs.read(Path(__file__).with_name("logs") / "cpu-engine-killed.log", None, PINNED)
RATE = (
    "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 4.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs"
)
SLOW = said(*[info(RATE)] * 3)
SERVED = log("made-spark-compose", "gpt-oss-120b-spark")
TRTLLM = "FLASHINFER_TRTLLM_MXFP4_MXFP8"
LOGS_CASES: Mapping[str, Cases] = {
    "start": Cases(
        [
            Case(log("made-refused"), WRONG, "the server did not start", "see its errors"),
            Case(said(), NOTE, "it ends before the server is ready"),
            Case(logs.of("hello\n"), UNKNOWN, "no start of vLLM"),
        ],
        SERVED,
    ),
    "errors": Cases(
        [
            Case(log("made-no-linear"), WRONG, "Failed to find a kernel", "read on", 7),
            Case(KILLED, WRONG, "engine core exited unexpectedly", "OOM killer", 126),
            Case(log("h200-too-much"), WRONG, "less than desired GPU memory utilization", "free -h", 43),
            Case(log("h200-jit-failed"), WRONG, "a kernel of FlashInfer does not compile", "MAX_JOBS=2", 90),
            Case(log("cpu-argument"), WRONG, "has no such flag", "--script", 5),
            Case(log("h200-refused-moe"), WRONG, "the requested backend does not run here", "stack recipe show", 105),
        ],
        log("cpu-fp32"),
    ),
    "version": Cases(
        [
            Case(log("cpu-fp32", pinned="0.33.0"), NOTE, "the stack stands on 0.33.0", "build wheels vllm"),
            Case(logs.of("█  version 0.32.0\n", None, PINNED), NOTE, "is upstream's", "build wheels vllm"),
        ],
        SERVED,
    ),
    "backends": Cases([Case(said(), UNKNOWN, "which backends run")], SERVED),
    # Kernels of other devices are refused wherever one looks closely: nothing is to be known of that.
    "refused": Cases(
        [Case(log("cpu-refused-moe"), NOTE, "MoE: MARLIN was not taken (kernel does not support", "", 132)], SERVED
    ),
    "never-on-sm12x": Cases(
        [
            Case(
                said(info(f"Using '{TRTLLM}' Mxfp4 MoE backend."), recipe="gpt-oss-120b-spark"),
                WRONG,
                "SM100 and SM103",
                "recipe show",
                2,
            )
        ],
        SERVED,
    ),
    "expected": Cases(
        [
            Case(
                log("made-two-ranks", "gpt-oss-120b-spark"),
                WRONG,
                "expects MarlinMxFp4LinearKernel, it is FlashInfer",
                "recipe show",
                11,
            ),
            Case(
                log("made-two-ranks", "gpt-oss-120b-spark"),
                WRONG,
                "attention: recipe gpt-oss-120b-spark expects FLASHINFER",
                "show",
                5,
            ),
        ],
        SERVED,
    ),
    "machine": Cases(
        [
            Case(
                said(info(f"{ARGUMENTS}, 'gpu_memory_utilization': 0.45}}"), recipe="gpt-oss-120b-spark"),
                WRONG,
                "the weights of gpt-oss-120b take 65.2 GB",
                "raise it",
                2,
            ),
            Case(
                said(info(f"{ARGUMENTS}, 'tensor_parallel_size': 2}}"), recipe="gpt-oss-120b-spark"),
                WRONG,
                "it wants 2 GPUs",
                "--nnodes 2",
                2,
            ),
        ],
        said(info(f"{ARGUMENTS}, 'gpu_memory_utilization': 0.7}}"), recipe="gpt-oss-120b-spark"),
    ),
    "graphs": Cases(
        [
            Case(log("h200-eager"), WRONG, "CUDA graphs are off (enforce_eager is set)", "--enforce-eager", 12),
            Case(said(), UNKNOWN, "whether CUDA graphs were captured"),
        ],
        SERVED,
    ),
    "kv-cache": Cases(
        [
            Case(
                said(info("GPU KV cache size: 1,000 tokens, Maximum concurrency for 4,096 tokens per request: 0.24x")),
                WRONG,
                "does not fit",
                "--max-model-len",
            ),
            Case(said(), UNKNOWN, "how large the KV cache is"),
        ],
        SERVED,
    ),
    "fallbacks": Cases(
        [Case(log("made-two-ranks"), NOTE, "a fallback is used instead of the requested setting", "", 9)], SERVED
    ),
    "throughput": Cases([Case(SLOW, NOTE, "one request gets 2 tokens a second over 3 lines", "--dmesg", 2)], SERVED),
    "unknown-variables": Cases(
        [Case(log("h200-variables"), WRONG, "VLLM_NVFP4_GEMM_BACKEND is set", "--linear-backend", 9)], log("h200-default")
    ),
}
