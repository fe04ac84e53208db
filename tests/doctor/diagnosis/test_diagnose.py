# SPDX-License-Identifier: Apache-2.0
"""The doctor names one cause and its consequences; time, process and how specific a rule is decide which."""

from stack.doctor import logs
from stack.doctor.finding import Finding, Severity

from ..cases import PINNED, WRONG, said

TAKEN = (
    "ValueError: Free memory on device cuda:0 (30.1/119.7 GiB) on startup is less than desired GPU memory utilization (0.8, "
)
LOST = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
ODD = "RuntimeError: the frobnicator is out of phase"
SHM = "torch.distributed.DistBackendError: Error while creating shared memory segment /dev/shm/nccl-x (size 33): No space left on device"


def line(text: str, at: str = "10:01:00", process: str = "EngineCore pid=7", level: str = "ERROR") -> str:
    return f"({process}) {level} 01-17 {at} [some.py:1] {text}"


def api(text: str, at: str = "10:01:00") -> str:
    return line(text, at, "APIServer pid=1")


def look(*lines: str, kernel: str = "") -> list[Finding]:
    head = "(APIServer pid=1) INFO 01-17 10:00:00 [a.py:1]   █▄█▀ █     █     █     █  version 0.32.0+sm121.g1\n"
    subject = logs.of(head + "\n".join(lines) + "\n", None, PINNED, kernel=kernel)
    return [one for one in logs.places(logs.look(subject, "x.log"), "dmesg") if one.check == "errors"]


def told(*lines: str, kernel: str = "") -> list[tuple[str, int | None]]:
    """The rules of what is wrong, each with its line; an unknown error has no rule."""
    return [(one.found.rule or "", one.found.line) for one in look(*lines, kernel=kernel) if one.severity is WRONG]


def test_what_follows_is_no_cause_wherever_it_stands() -> None:
    for lines, at in (((line(TAKEN), api(LOST)), 2), ((api(LOST), line(TAKEN)), 3)):
        (one,) = [one for one in look(*lines) if one.severity is WRONG]
        assert (one.found.rule, one.found.line) == ("memory-taken", at)
        assert f"Line {5 - at} follows from it." in one.found.what


def test_at_one_time_the_engine_s_error_is_the_cause_whoever_wrote_first() -> None:
    flag = "ValueError: To serve at least one request with the model's max seq len (131072), (4.5 GiB KV cache is needed"
    worker = line(SHM, "10:01:01", "Worker_TP1 pid=9")
    assert told(api(flag), worker)[0] == ("shm-full", 3)


def test_what_came_minutes_before_is_the_cause_whoever_wrote_it() -> None:
    old = "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"
    lines = api(TAKEN, "10:01:00"), api(old, "10:05:00"), line(SHM, "10:09:00", "Worker_TP1 pid=9")
    assert [rule for rule, _ in told(*lines)] == ["memory-taken", "architecture-unknown", "shm-full"]


def test_a_general_rule_is_quiet_where_a_specific_one_knows() -> None:
    missing = "/tmp/t/main.c:5:10: fatal error: Python.h: No such file or directory"
    inductor = line("torch._inductor.exc.InductorError: CalledProcessError: something")
    assert told(inductor) == [("inductor-failed", 2)]
    assert told(missing, inductor) == [("python-headers-missing", 2)]


def test_other_causes_of_the_same_line_are_told_as_less_sure() -> None:
    found = look(
        "[E socket.cpp:9] [c10d] The client socket has timed out after 600s while trying to connect to (172.17.0.2, 29501)."
    )
    assert [(one.severity, one.found.rule) for one in found] == [
        (WRONG, "bridge-address"),
        (Severity.NOTE, "store-unreachable"),
    ]
    assert found[1].found.what.startswith("less sure: ")


def test_an_error_that_no_rule_knows_is_said_to_be_unknown_with_its_frames() -> None:
    trace = [
        "Traceback (most recent call last):",
        *(f'  File "/v/lib/python3.12/site-packages/vllm/{name}.py", line {at}, in step' for at, name in enumerate("abcd", 1)),
        f"{ODD}",
    ]
    (one,) = look(*map(line, trace), api(LOST))
    assert one.found.rule is None or one.found.rule == ""
    assert "no rule knows it; innermost frames: vllm/d.py:4 step ← vllm/c.py:3 step ← vllm/b.py:2 step" in one.found.what
    assert "vllm/a.py" not in one.found.what
    assert one.found.line == 7


def test_an_error_of_nccl_is_one_failure_with_its_last_error() -> None:
    lines = (
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, unhandled system "
        "error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
        "Last error:",
        "socketPollConnect: connect to 127.0.1.1<43211> returned Connection refused, exceeded error retry count after 35 attempts",
    )
    assert told(*map(line, lines)) == [("nccl-connect", 5)]


def test_consequences_alone_are_no_cause() -> None:
    (one,) = look(api(LOST))
    assert "The cause is unknown" in one.found.what
    assert one.found.rule == "engine-dead"


def test_a_message_that_goes_on_in_the_next_line_is_one_error() -> None:
    fatal = "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"
    assert told(line("RuntimeError: `ptxas` failed with error code 255:"), line(fatal)) == [("architecture-unknown", 3)]


def test_what_a_server_says_while_it_ends_as_asked_is_no_failure() -> None:
    asked = line("[shutdown] API server: shutdown triggered", process="APIServer pid=1", level="INFO")
    dead = api("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.")
    assert told(asked, dead) == []
    assert [rule for rule, _ in told(dead, asked)] == ["engine-dead"]


def test_the_kernel_s_word_beside_a_log_comes_first() -> None:
    kernel = "[Fri Jan 17 10:00:58 2026] Out of memory: Killed process 77 (VLLM::EngineCor) total-vm:1kB, anon-rss:90000000kB\n"
    ended = line("[shutdown] MPClient: engine core exited unexpectedly; starting cleanup", process="APIServer pid=1")
    (one,) = [one for one in look(ended, kernel=kernel) if one.severity is WRONG]
    assert (one.found.rule, one.where, one.found.line) == ("oom-killer", "dmesg", 1)


def test_a_kernel_s_word_of_another_time_is_not_about_the_log() -> None:
    kernel = "[Fri Jan 16 10:00:58 2026] Out of memory: Killed process 77 (VLLM::EngineCor) total-vm:1kB, anon-rss:90000000kB\n"
    assert told(line(TAKEN), kernel=kernel) == [("memory-taken", 2)]


def test_of_two_ranks_logs_the_one_that_failed_first_is_named() -> None:
    def log(at: str, text: str) -> logs.LogSubject:
        return said(line("world_size=2 rank=0", "10:00:30", level="INFO"), line(text, at))

    broken = "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Broken pipe"
    one, other = log("10:01:20", broken), log("10:01:00", TAKEN)
    for order in ([("a", one), ("b", other)], [("b", other), ("a", one)]):
        found = logs.failed_first(order)
        assert found is not None
        assert (found.where, found.severity) == ("b", Severity.NOTE)
        assert "20 s before" in found.found.what
    assert logs.failed_first([("a", one), ("b", one)]) is None


def test_a_log_of_another_release_is_at_most_a_note() -> None:
    subject = logs.of(
        "(APIServer pid=1) INFO 01-17 10:00:00 [a.py:1] █▄█▀ █  version 0.19.1\nINFO:     Application startup complete.\n",
        None,
        PINNED,
    )
    assert {one.severity for one in logs.look(subject, "x")}.isdisjoint({WRONG})
