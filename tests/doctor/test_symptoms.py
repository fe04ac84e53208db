# SPDX-License-Identifier: Apache-2.0
"""The six bugs that cost their finders days, each by what its finder saw, and what finds it now."""

from stack.doctor import logs, machine, scripts
from stack.doctor.finding import Finding, Severity, run

from . import servers
from .cases import MACHINE, OFFLINE, info, said, sh
from .servers import Manner, looked, serving


def wrong(found: list[Finding], check: str) -> Finding:
    (one,) = (one for one in found if one.check == check and one.severity is Severity.WRONG)
    assert one.found.fix
    return one


def of_log(*lines: str) -> list[Finding]:
    return [*logs.look(said(*lines), "log")]


def of_script(text: str) -> list[Finding]:
    return [*run(scripts.CHECKS, sh(text), "serve.sh")]


def of_server(manner: Manner) -> list[Finding]:
    with serving(manner) as url:
        return [*looked(url, None, None, None, key=None, longest=5)]


def test_the_server_crashes_at_its_start_after_patches_were_applied_to_another_release() -> None:
    line = info("ImportError: cannot import name 'quant_utils' from 'vllm.model_executor.layers.quantization'", "ERROR")
    found = wrong(of_log("ready to load", line), "errors")
    assert found.place == "log:3"
    assert "was moved in this release" in found.found.what
    assert "stack check" in found.found.fix


def test_26_tokens_a_second_instead_of_59() -> None:
    of_the_script = wrong(of_script("vllm serve m \\\n  --host ::1 \\\n  --enforce-eager\n"), "eager")
    assert of_the_script.place == "serve.sh:3"
    of_the_log = wrong(of_log(info("Enforce eager set, disabling torch.compile, CUDAGraphs", "WARNING")), "graphs")
    assert of_the_log.place == "log:2"
    assert "--enforce-eager" in of_the_log.found.fix


def test_error_downloading_or_loading_vocab_file() -> None:
    of_the_machine = wrong([*run(machine.CHECKS, OFFLINE, "here")], "vocabulary")
    assert "TIKTOKEN_RS_CACHE_DIR" in of_the_machine.found.fix
    assert [*run(machine.CHECKS, MACHINE["vocabulary"].quiet, "here")]
    line = info("openai_harmony.HarmonyError: error downloading or loading vocab file", "ERROR")
    assert "oss-harmony" in wrong(of_log(line), "errors").found.fix


def test_content_is_null_while_tokens_are_counted() -> None:
    parser = wrong(of_server(servers.ends(None, reasoning="Paris, since it is the capital.")), "content")
    assert "--reasoning-parser" in parser.found.fix
    cut = [one for one in of_server(servers.ends(None, ended="length")) if one.check == "content"]
    assert [(one.severity, "finish_reason length" in one.found.what) for one in cut] == [(Severity.NOTE, True)]
    assert (
        "openai_gptoss"
        in wrong(of_script("vllm serve openai/gpt-oss-120b --reasoning-parser qwen3\n"), "reasoning-parser").found.fix
    )


def test_garbage_when_the_client_sends_a_system_message() -> None:
    raw = wrong(of_server(Manner(chat=servers.twice)), "system-message")
    assert "2 system messages" in raw.found.what
    assert "control tokens" in wrong(of_server(Manner(chat=servers.garbage)), "system-message").found.what


def test_endless_repetition_on_longer_answers() -> None:
    assert "repeats itself" in wrong(of_server(Manner(chat=servers.endless)), "repetition").found.what
    of_the_script = wrong(of_script("#\nexport VLLM_NVFP4_GEMM_BACKEND=marlin\n"), "variables")
    assert of_the_script.place == "serve.sh:2"
    assert "--linear-backend" in of_the_script.found.fix
    line = info("Unknown vLLM environment variable detected: VLLM_NVFP4_GEMM_BACKEND", "WARNING")
    assert "--linear-backend" in wrong(of_log(line), "unknown-variables").found.fix


def test_a_container_that_never_starts() -> None:
    for line, rule in (
        (
            "docker: Error response from daemon: manifest for a/b:c not found: manifest unknown: manifest unknown",
            "image-missing",
        ),
        ("no matching manifest for linux/arm64/v8 in the manifest list entries", "image-other-architecture"),
        ("exec /usr/bin/python3: exec format error", "image-exec-format"),
    ):
        found = [*logs.look(logs.of(f"{line}\n"), "log")]
        assert wrong(found, "errors").found.rule == rule
        assert Severity.UNKNOWN not in {one.severity for one in found}


def test_a_driver_that_comes_with_the_system() -> None:
    line = info("torch.AcceleratorError: CUDA error: the provided PTX was compiled with an unsupported toolchain.", "ERROR")
    assert "which the driver supports" in wrong(of_log(line), "errors").found.fix
