"""Hostile policies, one for every way out we know of, with what has to come of each.

`monty` and `full` (Python in a process) name the kinds of `PolicyError` that are right, split by `|`; `ok` stands for
a harmless config. Sources see @CANARY@ (a secret file), @TARGET@ (a path they must not create), @PORT@ (a listener
on this machine).
"""

from __future__ import annotations

from dataclasses import dataclass

SECRET = "canary-4711-never-to-be-seen"
SECRET_VARIABLE = "CCL_SEARCH_TEST_SECRET"


@dataclass(frozen=True)
class Attack:
    """A hostile policy, the outcomes allowed per dialect, and whether it only reads files."""

    name: str
    source: str
    monty: str
    full: str
    reads: bool = False

    @property
    def seconds(self) -> float:
        """The limit to run it under: short where it may be run into, else long enough for a busy machine."""
        return 0.5 if "timeout" in f"{self.monty}|{self.full}".split("|") else 4.0


def body(*lines: str) -> str:
    """A policy of these lines."""
    return "\n".join(["def generate_config(workload, environment):", *(f"    {line}" for line in lines)]) + "\n"


def _loops() -> list[Attack]:
    swallow = body("while True:", "    try:", "        while True: pass", "    except BaseException: pass")
    recursion = "import sys\nsys.setrecursionlimit(10**9)\n"
    descent = "def generate_config(workload, environment):\n    return generate_config(workload, environment)\n"
    return [
        Attack("endless loop", body("while True: pass"), "timeout", "timeout"),
        Attack("endless loop swallowing everything", swallow, "timeout", "timeout"),
        Attack("endless loop while loading", "while True: pass\n", "timeout", "timeout"),
        Attack("loop in C", body("return {'tp': sum(range(10**12))}"), "timeout", "timeout"),
        Attack("endless sort key", body("return {'tp': max(range(10**12), key=abs)}"), "timeout|memory", "timeout"),
        Attack("recursion", descent, "raised", "raised"),
        Attack(
            "recursion without limit",
            recursion + descent,
            "raised",
            "crashed|memory|timeout",
        ),
        Attack("nested parentheses", "x = " + "(" * 5000 + ")" * 5000 + "\n", "syntax", "syntax|memory"),
        Attack("nested lists", "x = " + "[" * 5000 + "]" * 5000 + "\n", "syntax", "syntax|memory"),
        Attack(
            "backtracking regex",
            body("import re", "return {'tp': bool(re.match(r'(a+)+$', 'a' * 40 + 'b'))}"),
            "ok",
            "timeout",
        ),
        Attack("sleeping", body("import time", "time.sleep(60)", "return {'tp': 1}"), "ok", "timeout"),
        Attack("waiting for input", body("return {'tp': input()}"), "raised", "raised"),
    ]


def _memory() -> list[Attack]:
    grow_list = body("x = []", "while True: x.append(str(len(x)) * 100)")
    grow_dict = body("x = {}", "while True: x[len(x)] = [len(x)] * 50")
    grow_text = body("x = 'a'", "while True: x += x")
    many = body("return {str(i): i for i in range(10**6)}")
    return [
        Attack("giant list", body("return {'tp': len([0] * 10**10)}"), "memory", "memory"),
        Attack("giant text", body("return {'tp': len('a' * 10**10)}"), "memory", "memory"),
        Attack("giant bytes", body("return {'tp': len(bytes(10**10))}"), "memory|raised", "memory"),
        Attack(
            "giant format width", body("return {'tp': '{:>10000000000}'.format(1)}"), "memory|raised", "memory|raised"
        ),
        Attack("growing list", grow_list, "memory|timeout", "memory|timeout"),
        Attack("growing dict", grow_dict, "memory|timeout", "memory|timeout"),
        Attack("growing text", grow_text, "memory", "memory"),
        Attack("giant power", body("return {'tp': 7 ** (10**9)}"), "memory|timeout", "timeout|memory"),
        Attack("int to text", body("return {'tp': len(str(10**200000))}"), "raised|timeout|memory", "raised"),
        Attack(
            "endless generator",
            body("return {'tp': len(list(iter(int, 1)))}"),
            "memory|timeout|raised",
            "memory|timeout",
        ),
        Attack("10**6 keys", many, "timeout|memory", "bad_result|timeout|memory"),
        Attack("print flood", body("while True: print('x' * 1000)"), "output|timeout", "output"),
        Attack(
            "flood on standard error",
            body("import sys", "while True: sys.stderr.write('x' * 1000)"),
            "output|timeout|raised",
            "output",
        ),
        Attack("huge message", body("raise ValueError('x' * 10**6)"), "raised", "raised"),
        Attack(
            "swallowed memory error",
            body("try: x = [0] * 10**10", "except MemoryError: x = []", "return {'tp': 1}"),
            "memory|ok",
            "ok",
        ),
    ]


def _introspection() -> list[Attack]:
    every = "().__class__.__bases__[0].__subclasses__()"
    subclasses = f"[c for c in {every} if c.__name__ in ('Popen', '_wrap_close')]"
    run = body(
        f"for found in {subclasses}:",
        "    found.__init__.__globals__['system']('touch @TARGET@')",
        "import os",
        "return {'tp': 1, 'there': os.path.exists('@TARGET@')}",
    )
    spelled = body("c = getattr((), '__cl' + 'ass__')", "return {'tp': len(getattr(c, '__ba' + 'ses__'))}")
    frames = body(
        "import sys", "f = sys._getframe()", "while f.f_back: f = f.f_back", "return {'tp': len(f.f_globals)}"
    )
    helper = body("g = generate_config.__globals__['__builtins__']", "return {'tp': g['open']('@CANARY@').read()}")
    imported = body("return {'tp': __import__('os').system('touch @TARGET@')}")
    evaluated = body("return {'tp': eval('open')('@CANARY@').read()}")
    unpickled = body("import pickle", "return {'tp': pickle.loads(b'cos\\nsystem\\n(S\"touch @TARGET@\"\\ntR.')}")
    return [
        Attack("walk to subclasses", run, "raised", "ok"),
        Attack("getattr spelling", spelled, "raised", "ok"),
        Attack("format attribute", body("return {'tp': '{0.__class__.__mro__}'.format(1)}"), "raised", "ok"),
        Attack("frames", frames, "raised", "ok"),
        Attack("globals of the function", helper, "raised", "raised|forbidden", reads=True),
        Attack("hidden import", imported, "raised", "ok"),
        Attack("eval", evaluated, "forbidden", "raised|forbidden", reads=True),
        Attack("pickle", unpickled, "unsupported", "ok"),
    ]


def _files() -> list[Attack]:
    other = "forbidden|raised"
    parent = body("import os", "return {'x': open(f'/proc/{os.getppid()}/environ').read()[:200]}")
    own = body("return {'x': open('/proc/self/environ').read()[:200]}")
    listing = body("import os", "return {'x': ','.join(os.listdir(os.path.dirname('@CANARY@')))[:200]}")
    return [
        Attack("read a file", body("return {'x': open('@CANARY@').read()}"), "forbidden", other, reads=True),
        Attack(
            "read /etc/passwd", body("return {'x': open('/etc/passwd').read()[:50]}"), "forbidden", other, reads=True
        ),
        Attack(
            "read by pathlib",
            body("import pathlib", "return {'x': pathlib.Path('@CANARY@').read_text()}"),
            other,
            other,
            reads=True,
        ),
        Attack(
            "read by os.open",
            body("import os", "return {'x': os.read(os.open('@CANARY@', 0), 99).decode()}"),
            "raised",
            other,
            reads=True,
        ),
        Attack("list a folder", listing, other, other, reads=True),
        Attack("environment of the parent", parent, "raised", other, reads=True),
        Attack("own environment by /proc", own, "forbidden", other, reads=True),
        Attack("environment", body("import os", "return {'x': str(dict(os.environ))}"), "raised|unsupported", "ok"),
        Attack("write a file", body("open('@TARGET@', 'w').write('x')"), "forbidden", "forbidden"),
        Attack("append to the secret", body("open('@CANARY@', 'a').write('x')"), "forbidden", "forbidden"),
        Attack("make a folder", body("import os", "os.mkdir('@TARGET@')"), other, "forbidden"),
        Attack("link", body("import os", "os.symlink('/etc', '@TARGET@')"), other, "forbidden"),
        Attack("remove", body("import os", "os.remove('@CANARY@')"), other, "forbidden"),
        Attack("change rights", body("import os", "os.chmod('@CANARY@', 0o777)"), other, "forbidden"),
        Attack("truncate", body("import os", "os.truncate('@CANARY@', 0)"), "raised", "forbidden"),
        Attack("raw call to write", body(*_raw_open()), "unsupported", "ok"),
    ]


def _raw_open() -> tuple[str, ...]:
    return (
        "import ctypes",
        "c = ctypes.CDLL(None)",
        "return {'x': min(c.open(b'@TARGET@', 0o102, 0o644), c.creat(b'@TARGET@', 0o644), 0)}",
    )


def _system() -> list[Attack]:
    gone = "raised|unsupported"
    command = body("import os", "return {'x': os.system('touch @TARGET@')}")
    popen = body("import os", "return {'x': os.popen('cat @CANARY@').read()}")
    sub = body("import subprocess", "return {'x': subprocess.check_output(['/bin/cat', '@CANARY@']).decode()}")
    native = body("import ctypes", "return {'x': ctypes.CDLL(None).system(b'touch @TARGET@')}")
    execute = body("import os", "os.execv('/bin/sh', ['sh', '-c', 'touch @TARGET@'])")
    connect = body("import socket", "socket.create_connection(('127.0.0.1', @PORT@), 1).send(b'x')", "return {'x': 1}")
    fetch = body("import urllib.request", "return {'x': urllib.request.urlopen('http://127.0.0.1:@PORT@').status}")
    raw = body(
        "import ctypes", "c = ctypes.CDLL(None)", "return {'x': min(c.socket(2, 1, 0), c.socketpair(1, 1, 0, None))}"
    )
    bomb = body("import os", "while True: os.fork()")
    quiet = body("import os", "while True:", "    try: os.fork()", "    except OSError: pass")
    grandchild = body(
        *("import os, time", "if os.fork() == 0:", "    os.setsid()", "    if os.fork() == 0: time.sleep(30)"),
        *("    os._exit(0)", "return {'x': 1}"),
    )
    native_fork = body(
        *("import ctypes, time", "c = ctypes.CDLL(None)", "p = min(c.fork(), c.vfork())"),
        *("if p == 0: time.sleep(30)", "return {'x': p}"),
    )
    thread = body(
        "import threading, time", "threading.Thread(target=time.sleep, args=(30,)).start()", "return {'x': 1}"
    )
    calls = body(
        *("import ctypes", "c = ctypes.CDLL(None)", "n = [c.ptrace(16, c.getppid(), 0, 0), c.unshare(0x10000000)]"),
        *("n += [c.mount(b'x', b'/', b'tmpfs', 0, 0), c.setuid(0), c.chroot(b'/'), c.syscall(425, 1, 0)]",),
        *("n += [c.kill(c.getppid(), 0), c.memfd_create(b'x', 0), c.prctl(38, 0, 0, 0, 0)]", "return {'x': max(n)}"),
    )
    return [
        Attack("os.system", command, gone, "ok"),
        Attack("os.popen", popen, gone, "forbidden"),
        Attack("subprocess", sub, gone, "forbidden"),
        Attack("system by ctypes", native, gone, "ok"),
        Attack("replace the process", execute, gone, "forbidden"),
        Attack("socket", connect, gone, "forbidden"),
        Attack("fetch a page", fetch, gone, "raised"),
        Attack("socket by ctypes", raw, gone, "ok"),
        Attack("fork bomb", bomb, gone, "forbidden"),
        Attack("fork bomb swallowing errors", quiet, gone + "|timeout", "timeout"),
        Attack("daemonised grandchild", grandchild, gone, "forbidden"),
        Attack("fork by ctypes", native_fork, gone, "ok"),
        Attack("background thread", thread, gone, "raised"),
        Attack("privileged calls", calls, gone, "ok"),
        Attack("signal the parent", body("import os", "os.kill(os.getppid(), 9)"), gone, "forbidden"),
        Attack("signal everybody", body("import os", "os.kill(-1, 15)"), gone, "forbidden"),
        Attack(
            "raise own limits",
            body("import resource as r", "r.setrlimit(r.RLIMIT_AS, (-1, -1))"),
            gone,
            "forbidden|raised",
        ),
    ]


def _exits() -> list[Attack]:
    gone = "raised|unsupported"
    close_all = body(
        "import os", "for fd in range(256):", "    try: os.close(fd)", "    except OSError: pass", "return {'x': 1}"
    )
    deaf = body("import signal", "for n in (2, 15, 24): signal.signal(n, signal.SIG_IGN)", "while True: pass")
    at_exit = body("import atexit", "atexit.register(print, 'x' * 10**6)", "return {'x': 1}")
    by_hand = body(
        *("import os", "for fd in range(3, 256):"),
        *('    try: os.write(fd, b\'{"config": {"tp": 1}}\\n\')', "    except OSError: pass", "os._exit(0)"),
    )
    forged = body(
        *("import os, sys", "f = sys._getframe()", "while 'nonce' not in f.f_locals: f = f.f_back"),
        *('text = f.f_locals[\'nonce\'] + b\'{"config": {"tp": [1], "1": NaN}}\\n\'',),
        *("os.write(f.f_locals['report'], text)", "os._exit(0)"),
    )
    odd = forged.replace('"config": {"tp": [1], "1": NaN}', '"error": 1, "bases": 5, "message": [1]')
    return [
        Attack("SystemExit", body("raise SystemExit(0)"), "raised", "raised"),
        Attack("sys.exit while loading", "import sys\nsys.exit(0)\n", "raised|unsupported", "raised"),
        Attack("KeyboardInterrupt", body("raise KeyboardInterrupt"), "raised", "raised"),
        Attack("os._exit", body("import os", "os._exit(0)"), gone, "crashed"),
        Attack("abort", body("import os", "os.abort()"), gone, "crashed"),
        Attack("null pointer", body("import ctypes", "ctypes.string_at(0)"), gone, "crashed"),
        Attack("closing standard output", body("import sys", "sys.stdout.close()", "return {'x': 1}"), gone, "ok"),
        Attack("closing every file", close_all, gone, "crashed"),
        Attack("deaf to signals", deaf, gone, "timeout"),
        Attack("at exit", at_exit, gone, "ok"),
        Attack("result by hand", by_hand, gone, "forbidden"),
        Attack("forged result", forged, gone, "bad_result"),
        Attack("forged error", odd, gone, "raised"),
        Attack("own TimeoutError", body("raise TimeoutError('feed time limit exceeded')"), "raised", "raised"),
    ]


def _results() -> list[Attack]:
    evil_show = "class E:\n    def __repr__(self):\n        while True: pass\n    __str__ = __repr__\n" + body(
        "return E()"
    )
    evil_text = "class E(Exception):\n    def __str__(self):\n        while True: pass\n" + body("raise E()")
    deep = body("x = 1", "for i in range(100000): x = [x]", "return {'tp': x}")
    deeper = body("x = {'a': 1}", "for i in range(900): x = {'a': x}", "return x")
    numbers = "class N(int):\n    pass\n" + body("return {'tp': N(1)}")
    counter = "n = [0]\n" + body("n[0] += 1", "return {'tp': n[0]}")
    clock = body("import time", "return {'x': time.time()}")
    order = body("import os", "return {'x': ''.join({str(i) for i in range(50)})}")
    patched = body("import math", "math.sqrt = None", "return {'tp': 1}")
    rewired = body("import json, os", "json.dumps = lambda *a: 'x'", "os.write = print", "return {'tp': 1}")
    changed = body("workload.clear()", "environment['total_gpus'] = 0", "return {'tp': 1}")
    bad = "bad_result"
    return [
        Attack("evil __repr__", evil_show, bad, bad),
        Attack("evil __str__", evil_text, "unsupported", "timeout"),
        Attack("list", body("return [('tp', 1)]"), bad, bad),
        Attack("nothing", body("return None"), bad, bad),
        Attack("own NotImplementedError", body("raise NotImplementedError"), "raised", "raised"),
        Attack("no function", "tp = 1\n", bad, bad),
        Attack("not a function", "generate_config = 5\n", "raised", "raised"),
        Attack("int key", body("return {1: 1}"), bad, bad),
        Attack("nested dict", body("return {'tp': {'a': 1}}"), bad, bad),
        Attack("tuple value", body("return {'tp': (1,)}"), bad, bad),
        Attack("None value", body("return {'tp': None}"), bad, bad),
        Attack("deep list", deep, bad, bad),
        Attack("deep dict", deeper, bad, bad),
        Attack("not a number", body("return {'tp': float('nan')}"), bad, bad),
        Attack("infinite", body("return {'tp': float('inf')}"), bad, bad),
        Attack("huge text", body("return {'tp': 'a' * 10**6}"), bad, bad),
        Attack("huge int", body("return {'tp': 10**40}"), bad, bad),
        Attack("gigantic int", body("return {'tp': 10**5000}"), bad, bad),
        Attack("subclass of int", numbers, "unsupported", bad),
        Attack("lone surrogate", body("return {'tp': chr(0xd800)}"), "raised", bad),
        Attack("65 keys", body("return {str(i): i for i in range(65)}"), bad, bad),
        Attack("counting calls", counter, "ok", "ok"),
        Attack("clock", clock, "ok", "not_deterministic"),
        Attack("random", body("import random", "return {'x': random.random()}"), "ok", "ok"),
        Attack("system entropy", body("import os", "return {'x': os.urandom(4).hex()}"), "raised", "not_deterministic"),
        Attack("order of a set", order, "ok", "not_deterministic"),
        Attack("patching math", patched, "raised", "ok"),
        Attack("patching json and os", rewired, "raised", "ok"),
        Attack("changing the inputs", changed, "ok", "ok"),
        Attack("null byte", "x = '\0'\n", "syntax", "syntax"),
        Attack("too long a source", "#" * 70000, "unsupported", "unsupported"),
    ]


BREAKOUTS = (*_loops(), *_memory(), *_introspection(), *_files(), *_system(), *_exits())
ATTACKS = (*BREAKOUTS, *_results())
