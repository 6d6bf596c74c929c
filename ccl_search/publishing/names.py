"""Names that tell who ran a search and where: finding them, and putting neutral words in their place, always the same.

What counts as a name: hosts and users that the run's own records name, the host and the user of this machine, names
the publisher adds, mail and network addresses, and paths of files (all but those of the system, such as `/usr/bin`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_HOST_KEYS = re.compile(r"^(?:host|hosts|host_?names?|nodes?|node_?(?:list|name)s?|head_node|login|ip|address)$", re.I)
_USER_KEYS = re.compile(r"^(?:users?|user_?name|account|owner|contributor|contact|project)$", re.I)
_IN_TEXT = re.compile(
    r"[\"']?\b(host_?name|node_?list|user_?name|user|account)[\"']?\s*[:=]\s*[\"']([^\"'\s]{3,})[\"']", re.I
)
_USER_IN_PATH = re.compile(r"/(?:home|Users|u|scratch|pscratch/\w|global/u\d/\w|global/homes/\w)/([\w.-]{3,})(?=/|\b)")
_MAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_PATH = re.compile(
    r"(?<![\w.:/~$}\-])(?:~[\w.-]*|\$HOME|\$\{HOME\})?/(?:[\w.@+=%-]+/)+[\w.@+=%-]*|~[\w.-]*/[\w./@+=%-]+"
)
_SYSTEM = ("/usr/", "/bin/", "/dev/", "/etc/", "/proc/", "/sys/", "/lib/", "/lib64/", "/sbin/")
_PLAIN = frozenset(
    {"root", "user", "users", "localhost", "host", "node", "none", "null", "unknown", "public", "ubuntu"}
)
_SHORTEST = 3


@dataclass
class Redactor:
    """Replaces names; the same name becomes the same word everywhere. `counts` says how many different ones of a kind
    were met."""

    hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    _words: dict[str, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _names: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        for kind, names in (("host", self.hosts), ("user", self.users), ("name", self.others)):
            for name in names:
                self._word(kind, name)
        ordered = sorted(self._words, key=lambda name: (-len(name), name))
        if ordered:
            self._names = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, ordered))})(?![A-Za-z0-9])")

    @property
    def counts(self) -> dict[str, int]:
        """Different names replaced so far, by kind."""
        return dict(sorted(self._counts.items()))

    def text(self, text: str) -> str:
        """`text` with every name replaced."""
        text = _MAIL.sub(lambda found: self._word("mail", found[0]), text)
        text = _PATH.sub(self._path, text)
        text = _ADDRESS.sub(lambda found: self._word("address", found[0]), text)
        return self._names.sub(lambda found: self._words[found[0]], text) if self._names is not None else text

    def data(self, value: Any) -> Any:
        """Plain data with every text in it redacted; keys stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.data(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(inner) for inner in value]
        return value

    def _path(self, found: re.Match[str]) -> str:
        return found[0] if found[0].startswith(_SYSTEM) else self._word("path", found[0])

    def _word(self, kind: str, name: str) -> str:
        if name not in self._words:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._words[name] = f"{kind}-{self._counts[kind]}"
        return self._words[name]


def found_in(documents: Iterable[Any]) -> tuple[set[str], set[str]]:
    """Hosts and users that plain data (texts, lists, mappings) names: by the keys they stand under, and in paths."""
    hosts: set[str] = set()
    users: set[str] = set()
    for document in documents:
        _collect(document, "", hosts, users)
    return {name for name in hosts if _is_name(name)}, {name for name in users if _is_name(name)}


def _collect(value: Any, key: str, hosts: set[str], users: set[str]) -> None:
    if isinstance(value, Mapping):
        for inner_key, inner in value.items():
            _collect(inner, str(inner_key), hosts, users)
    elif isinstance(value, list | tuple):
        for inner in value:
            _collect(inner, key, hosts, users)
    elif isinstance(value, str):
        if _HOST_KEYS.match(key):
            hosts.update(re.split(r"[\s,;]+", value))
        if _USER_KEYS.match(key):
            users.add(value.strip())
        users.update(_USER_IN_PATH.findall(value))
        for name, content in _IN_TEXT.findall(value):
            (users if name.lower().startswith(("user", "account")) else hosts).add(content)


def _is_name(name: str) -> bool:
    return len(name) >= _SHORTEST and name.lower() not in _PLAIN and not name.isdigit() and not name.startswith("/")


def of_this_machine() -> tuple[set[str], set[str]]:
    """The host names and the user of the machine that publishes."""
    import getpass
    import socket

    hosts = {socket.gethostname(), socket.gethostname().partition(".")[0]}
    try:
        users = {getpass.getuser()}
    except (KeyError, OSError):  # a process without a user name
        users = set()
    return {name for name in hosts if _is_name(name)}, {name for name in users if _is_name(name)}
