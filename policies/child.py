"""What runs inside the sandbox process: lock the process down, run one policy once, report on a pipe.

Standard library only. The parent hands this file over as compiled code together with the job, so nothing of the
product need be readable inside. Nothing the job's policy does is believed by the parent without a check of its own.

The constants of Landlock and seccomp are those of the Linux headers linux/landlock.h, linux/seccomp.h,
linux/bpf_common.h, linux/audit.h and asm/unistd.h of the two architectures.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys

TYPE_CHECKING = False  # what importing `typing` would say, at half the start-up time of this process
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

READY = b"ready\n"
FAILED = b"failed "
SCRIPT_NAME = "policy.py"
INTERPRETER_BYTES = 64 * 2**20
_MAX_KEYS = 64
_MAX_TRACEBACK = 8 * 2**10
_MAX_TEXT = 4 * 2**10

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_VERSION_QUERY, _LANDLOCK_PATH_BENEATH = 1, 1
_LANDLOCK_READ_FILE, _LANDLOCK_READ_DIR = 1 << 2, 1 << 3
# File rights known to each ABI: 1 has 13, 2 adds refer, 3 truncate, 5 device ioctl; 4 adds TCP, 6 the scopes.
_LANDLOCK_FILE_BITS = {1: 13, 2: 14, 3: 15, 4: 15}
_LANDLOCK_NEWEST_FILE_BITS = 16

_SECCOMP_SET_FILTER, _SECCOMP_ACTION_AVAILABLE = 1, 2
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000
_LOAD_WORD, _JUMP_IF_EQUAL, _JUMP_IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_OPEN_FLAGS = 0, 4, 32
_WRITING_FLAGS = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC

# What an interpreter needs to go on computing, importing and writing to open pipes. Everything else is refused:
# files opened for writing, sockets, processes and threads, signals, tracing, mounts, changed limits, io_uring, …
_AARCH64 = (
    {"getcwd": 17, "faccessat": 48, "close": 57, "getdents64": 61, "lseek": 62, "read": 63, "write": 64}
    | {"readv": 65, "writev": 66, "pread64": 67, "readlinkat": 78, "newfstatat": 79, "fstat": 80, "exit": 93}
    | {"exit_group": 94, "futex": 98, "nanosleep": 101, "clock_gettime": 113, "clock_getres": 114}
    | {"clock_nanosleep": 115, "sched_getaffinity": 123, "sched_yield": 124, "sigaltstack": 132, "rt_sigaction": 134}
    | {"rt_sigprocmask": 135, "rt_sigreturn": 139, "times": 153, "uname": 160, "getrusage": 165, "gettimeofday": 169}
    | {"getpid": 172, "getppid": 173, "getuid": 174, "geteuid": 175, "getgid": 176, "getegid": 177, "gettid": 178}
    | {"sysinfo": 179, "brk": 214, "munmap": 215, "mremap": 216, "mmap": 222, "mprotect": 226, "madvise": 233}
    | {"getrandom": 278, "statx": 291, "faccessat2": 439, "restart_syscall": 128}
)
_X86_64 = (
    {"read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "lseek": 8, "mmap": 9, "mprotect": 10}
    | {"munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "pread64": 17}
    | {"readv": 19, "writev": 20, "access": 21, "sched_yield": 24, "mremap": 25, "madvise": 28, "nanosleep": 35}
    | {"getpid": 39, "exit": 60, "uname": 63, "getcwd": 79, "readlink": 89, "gettimeofday": 96, "getrusage": 98}
    | {"sysinfo": 99, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110}
    | {"sigaltstack": 131, "gettid": 186, "time": 201, "futex": 202, "sched_getaffinity": 204, "getdents64": 217}
    | {"restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231}
    | {"newfstatat": 262, "readlinkat": 267, "faccessat": 269, "getrandom": 318, "statx": 332, "faccessat2": 439}
)
# machine -> audit architecture, number of seccomp(2), number of openat(2), allowed calls
_ARCHITECTURES = {
    "x86_64": (0xC000003E, 317, 257, _X86_64),
    "aarch64": (0xC00000B7, 277, 56, _AARCH64),
}


class LockdownError(Exception):
    """A confinement the job asks for could not be put in place."""


def landlock_abi() -> int:
    """The version of Landlock the kernel offers; 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_libc().syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION_QUERY)))


def seccomp_available() -> bool:
    """Whether the kernel takes a system call filter and this machine's call numbers are known here."""
    machine = _machine()
    if machine not in _ARCHITECTURES:
        return False
    refuse = ctypes.c_uint32(_REFUSE & 0xFFFF0000)
    number = _ARCHITECTURES[machine][1]
    return bool(_libc().syscall(number, _SECCOMP_ACTION_AVAILABLE, 0, ctypes.byref(refuse)) == 0)


def restrict_files(readable: list[str]) -> None:
    """Leave only the trees `readable` to be read, and no file to be written, by Landlock.

    Raises:
        LockdownError: the kernel refuses the rule set.
    """
    abi = landlock_abi()
    rights = (1 << _LANDLOCK_FILE_BITS.get(abi, _LANDLOCK_NEWEST_FILE_BITS)) - 1
    network, scopes = (3 if abi >= 4 else 0), (3 if abi >= 6 else 0)
    attributes = struct.pack("=QQQ", rights, network, scopes)
    ruleset = _called("landlock_create_ruleset", _LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    for path in readable:
        _allow_reading(ruleset, path)
    _called("landlock_restrict_self", _LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def restrict_calls() -> None:
    """Refuse (EPERM) every system call but those plain computation needs, by a seccomp filter.

    Raises:
        LockdownError: the kernel refuses the filter, or the machine's call numbers are not known here.
    """
    if _machine() not in _ARCHITECTURES:
        raise LockdownError(f"no system call filter is known for machine {_machine()!r}")
    program = filter_program(_machine())
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    header = struct.pack("@HP", len(program), ctypes.addressof(instructions))
    _called("seccomp", _ARCHITECTURES[_machine()][1], _SECCOMP_SET_FILTER, 0, header)


def filter_program(machine: str) -> list[tuple[int, int, int, int]]:
    """The BPF instructions (code, jump if true, jump if false, operand) for `x86_64` or `aarch64`."""
    architecture, _, openat, allowed = _ARCHITECTURES[machine]
    program = [
        (_LOAD_WORD, 0, 0, _OFFSET_ARCHITECTURE),
        (_JUMP_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD_WORD, 0, 0, _OFFSET_NUMBER),
        (_JUMP_IF_EQUAL, 0, 4, openat),
        (_LOAD_WORD, 0, 0, _OFFSET_OPEN_FLAGS),
        (_JUMP_IF_ANY_BIT, 0, 1, _WRITING_FLAGS),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    for number in allowed.values():
        program += [(_JUMP_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    return [*program, (_RETURN, 0, 0, _REFUSE)]


def main(job: dict[str, Any]) -> None:
    """Lock down, run the policy of `job` once, write the outcome to the job's report pipe, and end the process."""
    report, nonce = int(job["report"]), str(job["nonce"]).encode()
    write = os.write
    try:
        _lock_down(job)
    except (LockdownError, OSError, ValueError) as error:
        write(report, FAILED + str(error).encode())
        os._exit(1)
    write(report, READY)
    outcome = _outcome(job["source"], job["workload"], job["environment"], job["seed"])
    _write_all(write, report, nonce + outcome.encode() + b"\n")
    os._exit(0)


def _lock_down(job: dict[str, Any]) -> None:
    _limit(job["memory_bytes"] + INTERPRETER_BYTES, job["cpu_seconds"])
    if not sys.platform.startswith("linux"):
        return
    _libc().prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
    if job["parent"] and os.getppid() != job["parent"]:
        raise LockdownError("the parent process ended")
    if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise LockdownError("the kernel refuses to give up privileges")
    if job["readable"] is not None:
        restrict_files(job["readable"])
    if job["seccomp"]:
        restrict_calls()


def _limit(address_space: int, cpu_seconds: int) -> None:
    bounds = {"AS": address_space, "CPU": cpu_seconds, "FSIZE": 0, "NOFILE": 32, "CORE": 0, "NPROC": 0}
    for name, bound in bounds.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is None:
            continue
        hard = resource.getrlimit(kind)[1]
        value = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        try:
            resource.setrlimit(kind, (value, value))
        except (OSError, ValueError):
            if name in ("CPU", "FSIZE"):
                raise


def _outcome(source: str, workload: Any, environment: Any, seed: int) -> str:
    if "random" in source:
        import random

        random.seed(seed)
    try:
        code = compile(source, SCRIPT_NAME, "exec", dont_inherit=True)
    except BaseException as error:
        return _failure(error, source, compiling=True)
    try:
        return _encoded(_described(_call(code, workload, environment)))
    except BaseException as error:
        return _failure(error, source, compiling=False)


def _call(code: Any, workload: Any, environment: Any) -> Any:
    names: dict[str, Any] = {"__name__": "policy", "__file__": SCRIPT_NAME}
    exec(code, names)  # noqa: S102 - running the policy is the purpose of this process
    if "generate_config" not in names:
        return _MISSING
    return names["generate_config"](workload, environment)


_MISSING = object()


def _described(result: Any) -> dict[str, Any]:
    if result is _MISSING:
        return {"missing": True}
    if type(result) is not dict:
        return {"bad": f"generate_config returned a value of type {_name(result)} where a dict is needed"}
    if len(result) > _MAX_KEYS:
        return {"bad": f"generate_config returned {len(result)} keys, at most {_MAX_KEYS} are allowed"}
    for key, value in result.items():
        if type(key) is not str:
            return {"bad": f"a key of the result is a value of type {_name(key)}; keys are knob names (str)"}
        if type(value) not in (int, float, str, bool):
            return {
                "bad": f"the value of {key[:64]!r} is a value of type {_name(value)}; int, float, str and bool only"
            }
        if len(key) > _MAX_TEXT or (type(value) is str and len(value) > _MAX_TEXT):
            return {"bad": f"a text of the result has more than {_MAX_TEXT} characters"}
        if type(value) is int and value.bit_length() > 64:
            return {"bad": f"the value of {key[:64]!r} is an int of {value.bit_length()} bits"}
    return {"config": result}


def _encoded(value: Any) -> str:
    """The JSON text of dicts, lists, texts, numbers and booleans; importing `json` would double the start-up time."""
    if type(value) is dict:
        return "{" + ", ".join(f"{_quoted(key)}: {_encoded(item)}" for key, item in value.items()) + "}"
    if type(value) is list:
        return "[" + ", ".join(map(_encoded, value)) + "]"
    if type(value) is str:
        return _quoted(value)
    if type(value) is bool:
        return "true" if value else "false"
    text = repr(value)
    return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)


def _quoted(text: str) -> str:
    return '"' + "".join(c if " " <= c <= "~" and c not in '"\\' else _escaped(c) for c in text) + '"'


def _escaped(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD800 + (code - 0x10000 >> 10):04x}\\u{0xDC00 + (code - 0x10000 & 0x3FF):04x}"


def _failure(error: BaseException, source: str, *, compiling: bool) -> str:
    names = [kind.__name__ for kind in type(error).__mro__]
    try:
        message = {
            "error": names[0][:60],
            "bases": names[:16],
            "message": _text_of(error)[:_MAX_TEXT],
            "traceback": _lines_of(error) if isinstance(error, MemoryError) else _traceback_of(error, source),
            "compiling": compiling,
        }
        return _encoded(message)
    except BaseException as second:
        plain = {"error": names[0][:60], "bases": names[:16], "message": f"it cannot be shown ({_name(second)})"}
        return _encoded(plain | {"traceback": "", "compiling": compiling})


def _text_of(error: BaseException) -> str:
    text = str(error)
    return str.__str__(text)


def _traceback_of(error: BaseException, source: str) -> str:
    import linecache
    import traceback

    linecache.cache[SCRIPT_NAME] = (len(source), None, source.splitlines(keepends=True), SCRIPT_NAME)
    lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-20)
    text = "".join(line for line in lines if "<sandbox>" not in line)
    return text if len(text) <= _MAX_TRACEBACK else f"{text[: _MAX_TRACEBACK // 2]}\n…\n{text[-_MAX_TRACEBACK // 2 :]}"


def _lines_of(error: BaseException) -> str:
    """Where the policy was when memory ran out, told before anything needs new memory; then its data is let go."""
    lines, frame = [], error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == SCRIPT_NAME:
            lines.append((frame.tb_lineno, frame.tb_frame.f_code.co_name))
        frame = frame.tb_next
    error.__traceback__ = None
    return "".join(f'  File "{SCRIPT_NAME}", line {line}, in {name}\n' for line, name in lines[-20:])


def _name(value: object) -> str:
    return type(value).__name__[:60]


def _write_all(write: Callable[[int, bytes], int], pipe: int, data: bytes) -> None:
    while data:
        data = data[write(pipe, data) :]


def _allow_reading(ruleset: int, path: str) -> None:
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    attributes = struct.pack("=Qi", _LANDLOCK_READ_FILE | _LANDLOCK_READ_DIR, folder)
    _called("landlock_add_rule", _LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_PATH_BENEATH, attributes, 0)
    os.close(folder)


def _called(name: str, number: int, *arguments: Any) -> int:
    value = int(_libc().syscall(number, *arguments))
    if value < 0:
        raise LockdownError(f"{name}: {os.strerror(ctypes.get_errno())}")
    return value


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _machine() -> str:
    return os.uname().machine if sys.platform.startswith("linux") else ""
