"""The Redis tier: shared by trainers, processes and restarts. What it loses, does not answer or has damaged is loaded again.

An entry is a string under ``<namespace>:<topic id>:<partition>:<offset>:<fingerprint>``; values above ``PART_BYTES`` go on under
``…#1``, ``…#2``. Beside them a sorted set (entry → time of last use) and a hash (entry → bytes) keep the budget: one script puts
an entry and removes the oldest until all fit. Nothing is popped or added up from outside, so each call may be repeated or lost.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from cache.contracts import Counters, Key, RedisConfig

PART_BYTES = 1024 * 1024
"""Redis serves one command at a time: a larger value holds up all who share it."""

TELL_USES = 64
"""Entries that were read are told to the server so many at a time, and before something is put."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0

_HEAD = struct.Struct("<4sI")
_MAGIC = b"hrc1"

_PUT = """
local ages, sizes, budget, ttl = KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2])
local entry, now, parts, size = ARGV[3], ARGV[4], #KEYS - 2, tonumber(ARGV[5])
-- First of all: a server that is out of memory refuses a script only at its first write.
for i = 1, parts do redis.call('SET', KEYS[2 + i], ARGV[5 + i], 'PX', ttl) end
local total = tonumber(redis.call('HGET', sizes, '') or '0')
local function forget(name, kept)
  local old = redis.call('HGET', sizes, name)
  redis.call('ZREM', ages, name)
  if old then
    local bytes, count = string.match(old, '(%d+)/(%d+)')
    redis.call('HDEL', sizes, name)
    if kept == 0 then redis.call('DEL', name) end
    for i = math.max(kept, 1), tonumber(count) - 1 do redis.call('DEL', name .. '#' .. i) end
    total = total - tonumber(bytes)
  end
end
forget(entry, parts)
if parts > 0 then
  redis.call('HSET', sizes, entry, size .. '/' .. parts)
  redis.call('ZADD', ages, now, entry)
  total = total + size
end
local evicted = 0
while total > budget do
  local oldest = redis.call('ZRANGE', ages, 0, 0)[1]
  if not oldest then total = 0 break end
  forget(oldest, 0)
  evicted = evicted + 1
end
redis.call('HSET', sizes, '', total)
redis.call('PEXPIRE', ages, ttl * 2)
redis.call('PEXPIRE', sizes, ttl * 2)
return {total, redis.call('ZCARD', ages), evicted}
"""

T = TypeVar("T")
_logger = logging.getLogger("headrace.cache")


class Circuit:
    """Whether a kind of call is worth trying. Opens at a failure, lets one call through after a pause that doubles, closes at a
    success. Says each change once."""

    def __init__(self, what: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._what, self._clock_s = what, clock_s
        self._lock = threading.Lock()
        self._pause_s = 0.0
        self._not_before_s = 0.0

    @property
    def open(self) -> bool:
        """Whether it is out of use."""
        return self._pause_s > 0

    def allows(self) -> bool:
        """Whether to try now."""
        if not self._pause_s:
            return True
        with self._lock:
            now_s = self._clock_s()
            if now_s < self._not_before_s:
                return False
            self._not_before_s = now_s + self._pause_s  # the others wait for this one
            return True

    def failed(self, why: str) -> None:
        """The call did not work."""
        with self._lock:
            if not self._pause_s:
                _logger.warning("%s: %s; going on without it, it is tried again", self._what, why)
            self._pause_s = min(self._pause_s * 2 or FIRST_PAUSE_S, LONGEST_PAUSE_S)
            self._not_before_s = self._clock_s() + self._pause_s

    def worked(self) -> None:
        """The call worked."""
        if self._pause_s:
            with self._lock:
                if self._pause_s:
                    _logger.warning("%s: works again", self._what)
                self._pause_s = 0.0


class RedisTier:
    """``Tier`` in a Redis server (6.2 or later). Thread safe.

    Args:
        namespace: of the entries and of the budget, for example the label of a version.
    """

    def __init__(self, config: RedisConfig, namespace: str) -> None:
        self._config = config
        self._prefix = f"headrace:{namespace}:"
        self._redis = client_of(config)
        self._put = self._redis.register_script(_PUT)
        self._counters = Counters()
        self._lock = threading.Lock()
        self._used: dict[str, float] = {}
        place = shown(config.url)
        self._reads, self._writes = Circuit(f"reading from {place}"), Circuit(f"writing to {place}")

    @property
    def name(self) -> str:
        """``redis``."""
        return "redis"

    @property
    def counters(self) -> Counters:
        """Live counters; ``entries`` and ``bytes`` are those of the namespace as of this tier's last ``put``."""
        return self._counters

    @property
    def away(self) -> bool:
        """Whether it is bypassed now, for reading or for writing."""
        return self._reads.open or self._writes.open

    def get(self, key: Key) -> bytes | memoryview | None:
        """The value, if all its parts came in time."""
        value = self._try(self._reads, lambda: self._read(self._entry(key)))
        if value is None:
            self._counters.misses += 1
            return None
        self._counters.hits += 1
        with self._lock:
            self._used[self._entry(key)] = time.time()
            many = len(self._used) >= TELL_USES
        if many:
            self._try(self._writes, self._tell_uses)
        return value

    def put(self, key: Key, value: bytes | memoryview) -> None:
        """Keep it for ``ttl_s`` if it fits the budget; the least recently used of the namespace go first."""
        if len(value) > self._config.max_bytes or not len(value):
            value = b""  # only removes what is there
        done = self._try(self._writes, lambda: self._write(self._entry(key), memoryview(value)))
        if done is not None:
            self._counters.bytes, self._counters.entries = done[:2]
            self._counters.evictions += done[2]

    def clear(self) -> None:
        """Forget everything of the namespace."""
        if self._try(self._writes, self._clear) is not None:
            self._counters.entries = self._counters.bytes = 0

    def close(self) -> None:
        """Close the connections; entries stay for others and for the next start."""
        self._redis.close()

    def _try(self, circuit: Circuit, call: Callable[[], T]) -> T | None:
        if not circuit.allows():
            return None
        try:
            result = call()
        except (redis.RedisError, OSError) as error:
            self._counters.errors += 1
            circuit.failed(_reason(error))
            return None
        circuit.worked()
        return result

    def _read(self, entry: str) -> bytes | memoryview | None:
        first: Any = self._redis.get(entry)
        if first is None or len(first) < _HEAD.size:
            return None
        magic, length = _HEAD.unpack_from(first)
        if magic != _MAGIC:
            return None
        room = PART_BYTES - _HEAD.size
        rest = range(1, -(-length // room)) if length > room else range(0)
        if not rest:
            return memoryview(first)[_HEAD.size :] if len(first) - _HEAD.size == length else None
        parts = [first[_HEAD.size :], *self._redis.mget([f"{entry}#{number}" for number in rest])]
        value = b"".join(part for part in parts if part is not None)
        return value if len(value) == length and None not in parts else None

    def _tell_uses(self) -> bool:
        with self._lock:
            used, self._used = self._used, {}
        if used:
            self._redis.zadd(f"{self._prefix}ages", used, xx=True)
        return True

    def _write(self, entry: str, value: memoryview) -> tuple[int, int, int]:
        self._tell_uses()
        room = PART_BYTES - _HEAD.size
        parts = [value[at : at + room] for at in range(0, len(value), room)]
        texts: list[Any] = [bytes(part) for part in parts]
        if texts:
            texts[0] = _HEAD.pack(_MAGIC, len(value)) + texts[0]
        names = [entry, *(f"{entry}#{number}" for number in range(1, len(parts)))][: len(parts)]
        keys = [f"{self._prefix}ages", f"{self._prefix}sizes", *names]
        about: list[Any] = [self._config.max_bytes, round(self._config.ttl_s * 1000), entry, time.time(), len(value)]
        total, entries, evicted = self._put(keys=keys, args=[*about, *texts])
        return int(total), int(entries), int(evicted)

    def _clear(self) -> bool:
        for name in self._redis.scan_iter(match=f"{_escaped(self._prefix)}*", count=1000):
            self._redis.unlink(name)
        return True

    def _entry(self, key: Key) -> str:
        return f"{self._prefix}{key.topic_id}:{key.partition}:{key.offset}:{key.fingerprint}"


def client_of(config: RedisConfig) -> redis.Redis:
    """A client that tries once and waits for no call longer than the deadline. Connects at the first call."""
    return redis.Redis.from_url(
        config.url,
        socket_timeout=config.deadline_s,
        socket_connect_timeout=config.deadline_s,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
    )


def look_at(config: RedisConfig) -> tuple[bool, str]:
    """(whether something is wrong, what was found), for people."""
    place = shown(config.url)
    try:
        client = client_of(config)
        server, memory = client.info("server"), client.info("memory")
        role = client.info("replication")["role"]
        client.close()
    except (redis.RedisError, OSError, ValueError) as error:
        return True, f"{place}: {_reason(error)}"
    most, policy = int(memory["maxmemory"]), memory["maxmemory_policy"]
    text = f"{place} answers: Redis {server['redis_version']}, {role}, maxmemory {most or 'not set'}, {policy}"
    if role != "master":
        return True, f"{text}; it cannot be written"
    if not most or policy == "noeviction":
        return True, f"{text}; set maxmemory and maxmemory-policy allkeys-lru, or it grows until it fails"
    return False, text


def shown(url: str) -> str:
    """The URL as it may be printed: without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _reason(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in "*?[]\\" else char for char in text)
