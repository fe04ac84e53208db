# SPDX-License-Identifier: Apache-2.0
"""A block for an issue report has all that helps, and no key, host or path."""

import time

import pytest

from stack.doctor import logs
from stack.doctor.diagnosis.redact import redacted

from ..cases import info, said


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("token hf_abcdefghijkl", "token <secret>"),
        ("client sk-abcdefghijkl", "client <secret>"),
        ("api_key='sk-abcdefghijkl'", "api_key='<secret>'"),
        ("Authorization: Bearer abcdefghijkl", "Authorization: <secret>"),
        ("connect to 10.0.7.12:29501", "connect to <address>"),
        ("mail me@example.org", "mail <address>"),
        ("GET https://intern.example.org/x?y", "GET <url>"),
        ("spark-ab12:77:77 [0] NCCL WARN", "<host>:77:77 [0] NCCL WARN"),
        ("model /home/maria/models/gpt-oss", "model <path>/gpt-oss"),
        ("/home/maria/v/lib/python3.12/site-packages/vllm/a.py", ".../vllm/a.py"),
        ("Authorization: Basic YWxpY2U6aHVudGVyMg==", "Authorization: <secret>"),
        ("Cookie: a=1; session=abcdefghijkl", "Cookie: <secret>"),
        ("curl -u maria:hunter2 x", "curl -u <secret> x"),
        ("GET https://maria:hunter2@intern.example.org/p?sig=abcdefghijkl&a=b", "GET <url>"),
        ("AWS_SECRET_ACCESS_KEY wJalrXUtnFEMI1K7MDENGabcdefghijkl", "AWS_SECRET_ACCESS_KEY <secret>"),
        ("with npm_abcdefghijkl and ya29.abcdefghijkl", "with <secret> and <secret>"),
        ("-----BEGIN RSA PRIVATE KEY----- MIIabcdefghijkl", "<secret>"),
        (f"{'abcdefghijkl' * 5}abcd", "<secret>"),
        ("connecting to db-prod.internal.example.org:5432", "connecting to <host>:5432"),
        ("cannot reach spark-ab12.lan", "cannot reach <host>"),
        ("listens on fe80::1ff:fe23:4567:890a", "listens on <address>"),
        (r"open C:\Users\maria\x", "open <path>"),
        ("read ~maria/models/x", "read <path>/x"),
        ("GPU-12345678-1234-1234-1234-123456789abc", "<gpu>"),
    ],
)
def test_what_is_private_is_replaced(text: str, left: str) -> None:
    made = redacted(text)
    assert left in made
    for private in (
        "hf_",
        "sk-",
        "abcdefghijkl",
        "10.0.7.12",
        "example.org",
        "spark-ab12",
        "maria",
        "123456789abc",
        "hunter2",
        "YWxpY2U6",
    ):
        assert private not in made


@pytest.mark.parametrize(
    "text",
    [
        "host 0.0.0.0:8000",
        "max_tokens: 4096",
        "12 tokens per second at 10:01:02",
        "vllm/v1/engine/core.py:12",
        "c10::Error in at::native::add",
        "max_model_len: 131072, token_ids 12",
        "secret values are kept out of the log file",
    ],
)
def test_what_is_not_private_stays(text: str) -> None:
    assert redacted(text) == text


def test_a_line_that_is_all_beginnings_is_replaced_in_time() -> None:
    began = time.process_time()
    for piece in ("/a", "sk-", "a.", "1.", "token", "host=", "aa:", "Bearer "):
        redacted(piece * 10**6)
    assert time.process_time() - began < 2


def test_a_report_has_error_frames_and_versions() -> None:
    subject = said(
        info("world_size=2 rank=0, torch==2.13.0"),
        info("Traceback (most recent call last):", "ERROR"),
        info('  File "/home/maria/v/lib/python3.12/site-packages/vllm/odd.py", line 12, in step', "ERROR"),
        info("    turn(token='hf_abcdefghijkl')", "ERROR"),
        info("RuntimeError: the frobnicator at 10.0.7.12 is out of phase", "ERROR"),
    )
    block = subject.report
    for part in ("vLLM 0.32.0+sm121.g1", "torch 2.13.0", "ranks: 2", "the frobnicator at <address>", ".../vllm/odd.py:12 step"):
        assert part in block
    for private in ("maria", "hf_", "10.0.7.12"):
        assert private not in block


def test_a_report_names_the_cause_that_a_rule_knows() -> None:
    block = said(info("starts at 10.0.7.12"), info("RuntimeError: CUDA out of memory", "ERROR")).report
    for part in (
        "cause (rule out-of-memory, ",
        "error (line 3): RuntimeError: CUDA out of memory",
        "2: (EngineCore) starts at <",
    ):
        assert part in block
    assert "no rule knows" not in block


def test_a_report_has_a_known_cause_and_an_unknown_error_before_it() -> None:
    calm = [info(f"step {number}") for number in range(30)]
    block = said(info("KeyError: 'odd'", "ERROR"), *calm, info("torch.OutOfMemoryError: CUDA out of memory", "ERROR")).report
    for part in ("cause (rule out-of-memory, ", "first error (line 2): KeyError: 'odd'\n  no rule knows it", "\n  …\n"):
        assert part in block


def test_a_report_of_consequences_and_of_nothing_says_so() -> None:
    assert "only a consequence" in said(info("RuntimeError: Engine core initialization failed. See", "ERROR")).report
    assert said(info("calm")).report.endswith("error: none in the log")


def test_a_report_of_a_kernel_s_line_names_its_log() -> None:
    kernel = "[Fri Jan 17 10:00:08 2026] Out of memory: Killed process 77 (VLLM::EngineCor) total-vm:1kB, anon-rss:90000000kB\n"
    ended = "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup"
    block = logs.of(f"{info('version 0.32.0')}\n{info(ended, 'ERROR')}\n", kernel=kernel).report
    assert "error (line 1 of the kernel's log): " in block
    assert "\n  kernel 1: " in block
