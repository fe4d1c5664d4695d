"""The executables on disk: believed only when whole, shared by processes, never in the user's way."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import cache_child as child
import pytest

from torch_neuronx.compiler import disk_cache, eviction, file_lock
from torch_neuronx.compiler.disk_cache import CacheCounters, DiskCache

KEY = "ab" + "0" * 62
OTHER = "cd" + "1" * 62


@pytest.fixture(autouse=True)
def no_unexpected_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path / "neff", fingerprint=child.FINGERPRINT)


@pytest.fixture
def stored(cache):
    """The file of KEY."""
    cache.store(child.container(KEY))
    return cache.status().directory / "ab" / f"{KEY}.neff"


def failing(number):
    def fail(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    return fail


def age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then))


def start(action, cache, key=KEY):
    command = [sys.executable, child.__file__, action, str(cache.status().directory), key]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# Load and store


def test_store_then_load(cache):
    assert cache.load(KEY) is None
    cache.store(child.container(KEY))
    assert cache.load(KEY) == child.container(KEY)
    assert cache.load(OTHER) is None
    assert cache.counters == CacheCounters(hits=1, misses=2, stores=1)


def test_another_process_finds_it(cache, stored):
    fresh = DiskCache(cache.status().directory, fingerprint=child.FINGERPRINT)
    assert fresh.load(KEY) == child.container(KEY)


def test_file_is_private_and_alone(cache, stored):
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert stat.S_IMODE(stored.parent.stat().st_mode) == 0o700
    assert os.listdir(stored.parent) == [stored.name]


def test_load_or_compile(cache):
    compiled = []

    def compile():
        compiled.append(1)
        return child.container(KEY)

    for _ in range(3):
        assert cache.load_or_compile(KEY, compile) == child.container(KEY)
    assert len(compiled) == 1
    assert cache.counters == CacheCounters(hits=2, misses=1, stores=1)


def test_failed_compile_leaves_nothing(cache):
    def fail():
        raise RuntimeError("no")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            cache.load_or_compile(KEY, fail)
    assert list(cache.entries()) == []
    assert os.listdir(cache.status().directory / "ab") == []


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "ABCDEF0123", "0123", "0123456789ab/../x", "a" * 129])
def test_bad_keys(cache, key):
    with pytest.raises(ValueError, match="hexadecimal"):
        cache.load(key)


def test_directory_removed_meanwhile(cache, stored):
    stored.unlink()
    stored.parent.rmdir()
    (cache.status().directory / "growth").unlink()
    cache.status().directory.rmdir()
    assert cache.load(KEY) is None
    cache.load_or_compile(KEY, lambda: child.container(KEY))
    assert cache.load(KEY) is not None
    assert stat.S_IMODE(cache.status().directory.stat().st_mode) == 0o700


# Files not to believe


def refuse(cache, words):
    with pytest.warns(RuntimeWarning, match=words):
        assert cache.load(KEY) is None
    assert cache.counters.corrupt == 1
    assert cache.counters.hits == 0


@pytest.mark.parametrize("position", [0, 8, 20, 100, -200, -40, -1])
def test_flipped_byte(cache, stored, position):
    data = bytearray(stored.read_bytes())
    data[position] ^= 0x10
    stored.write_bytes(data)
    refuse(cache, "compiled anew")
    assert not stored.exists()


@pytest.mark.parametrize("data", [b"", b"garbage" * 100])
def test_not_a_container(cache, stored, data):
    stored.write_bytes(data)
    refuse(cache, "it is")
    assert not stored.exists()


def test_truncated(cache, stored):
    os.truncate(stored, stored.stat().st_size // 2)
    refuse(cache, "announces")


def test_foreign_fingerprint(cache, stored):
    cache.fingerprint = "engine 2.0 cpu avx2"
    refuse(cache, r"made for engine 1\.0 .*this is engine 2\.0")
    assert not stored.exists()


def test_copied_under_another_key(cache, stored):
    (stored.parents[1] / "cd").mkdir()
    stored.rename(stored.parents[1] / "cd" / f"{OTHER}.neff")
    with pytest.warns(RuntimeWarning, match="another key"):
        assert cache.load(OTHER) is None


def test_writable_by_others(cache, stored):
    stored.chmod(0o666)
    refuse(cache, "written by other users")
    assert not stored.exists()


def test_somebody_elses_file(cache, stored):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(stored, 12345, 12345)
    refuse(cache, "belongs to user 12345")


def test_link(cache, stored, tmp_path):
    stored.rename(tmp_path / "elsewhere")
    stored.symlink_to(tmp_path / "elsewhere")
    refuse(cache, "symbolic link")
    assert (tmp_path / "elsewhere").exists()
    assert not stored.is_symlink()


def test_pipe_does_not_hang(cache, stored):
    stored.unlink()
    os.mkfifo(stored)
    refuse(cache, "regular file")


def test_directory_in_a_files_place(cache, stored):
    stored.unlink()
    stored.mkdir()
    refuse(cache, "regular file")


def test_one_warning_for_many_bad_files(cache):
    for key in (KEY, OTHER):
        cache.store(child.container(key))
    for entry in cache.status().directory.glob("*/*.neff"):
        entry.write_bytes(b"")
    refuse(cache, "compiled anew")
    assert cache.load(OTHER) is None
    assert cache.counters.corrupt == 2


def test_bad_file_is_replaced(cache, stored):
    stored.write_bytes(b"")
    with pytest.warns(RuntimeWarning):
        cache.load_or_compile(KEY, lambda: child.container(KEY))
    assert cache.load(KEY) == child.container(KEY)


def test_discard(cache, stored):
    with pytest.warns(RuntimeWarning, match="the engine refused it"):
        cache.discard(KEY, "the engine refused it")
    assert not stored.exists()
    assert cache.counters.corrupt == 1


def test_unreadable_file(cache, stored, monkeypatch):
    monkeypatch.setattr(os, "open", failing(errno.EACCES))
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        assert cache.load(KEY) is None
    assert stored.exists()


# Folders that do not take part


def test_read_only(cache, stored, monkeypatch):
    age(stored, 1000)  # so that the load wants to touch it
    real = os.open

    def open_read_only(path, flags, *mode, **options):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            failing(errno.EROFS)()
        return real(path, flags, *mode, **options)

    monkeypatch.setattr(os, "open", open_read_only)
    monkeypatch.setattr(os, "utime", failing(errno.EROFS))
    with pytest.warns(RuntimeWarning, match="not kept in .*Read-only") as caught:
        cache.load_or_compile(OTHER, lambda: child.container(OTHER))
        cache.store(child.container(OTHER))
    assert len(caught) == 1
    assert cache.load(KEY) == child.container(KEY)
    assert cache.status().read_only
    assert "read only" in str(cache.status())


def test_full_disk(cache, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(errno.ENOSPC))
        with pytest.warns(RuntimeWarning, match="No space left") as caught:
            for _ in range(3):
                made = cache.load_or_compile(KEY, lambda: child.container(KEY))
    assert made == child.container(KEY)
    assert len(caught) == 1
    assert os.listdir(cache.status().directory / "ab") == []
    cache.store(child.container(KEY))
    assert cache.load(KEY) is not None


def test_short_writes(cache, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data[:7])))
    cache.store(child.container(KEY))
    assert cache.load(KEY) == child.container(KEY)


def test_no_trust_no_cache(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="chmod 700"):
        cache = DiskCache(tmp_path)
    assert not cache.status().enabled
    assert "chmod 700" in cache.status().reason
    cache.load_or_compile(KEY, lambda: child.container(KEY))
    assert os.listdir(tmp_path) == []
    assert (list(cache.entries()), cache.clear(), cache.verify()) == ([], 0, [])
    assert cache.counters == CacheCounters()


def test_from_environment(tmp_path):
    chosen = {"TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "x"), "TORCH_NEURONX_NEFF_CACHE_SIZE": "5M"}
    cache = DiskCache.from_environment(chosen, fingerprint="f")
    assert (cache.status().directory, cache.limit_bytes, cache.fingerprint) == (tmp_path / "x", 5 << 20, "f")
    assert str(cache.status()) == f"{tmp_path / 'x'}, on"
    off = DiskCache.from_environment({"TORCH_NEURONX_DISABLE_NEFF_CACHE": "1"})
    assert str(off.status()) == "off: TORCH_NEURONX_DISABLE_NEFF_CACHE is set"


# The limit


def test_least_recently_used_goes_first(tmp_path):
    keys = [f"{i:02x}" * 8 for i in range(4)]
    size = len(disk_cache.encode(child.container(keys[0], bytes(10_000))))
    cache = DiskCache(tmp_path / "neff", limit_bytes=size * 7 // 2)
    files = [cache.status().directory / key[:2] / f"{key}.neff" for key in keys]
    for i in range(3):
        cache.store(child.container(keys[i], bytes(10_000)))
        age(files[i], 1000 - i)
    assert cache.counters.evicted == 0
    cache.load(keys[0])
    cache.store(child.container(keys[3], bytes(10_000)))
    assert [file.exists() for file in files] == [True, False, True, True]
    assert cache.counters.evicted == 1


def test_limit_holds_without_a_walk_per_store(tmp_path, monkeypatch):
    walks = []
    real = eviction.sweep
    monkeypatch.setattr(eviction, "sweep", lambda *arguments: walks.append(1) or real(*arguments))
    cache = DiskCache(tmp_path / "neff", limit_bytes=1 << 20)
    for i in range(160):
        cache.store(child.container(f"{i:02x}" * 8, bytes(12_000)))
        if i % 40 == 39:
            assert sum(entry.size for entry in cache.entries()) <= 1 << 20
    assert 0 < len(walks) < 60
    assert cache.counters.evicted > 0


def test_too_large_to_keep(tmp_path):
    cache = DiskCache(tmp_path / "neff", limit_bytes=10_000)
    with pytest.warns(RuntimeWarning, match=r"aten::add.Tensor is not kept.*TORCH_NEURONX_NEFF_CACHE_SIZE"):
        cache.store(child.container(KEY, bytes(20_000)))
    assert list(cache.entries()) == []


def test_sweep_removes_what_killed_processes_left(cache, stored):
    old = [stored.with_name("x.1.ff.tmp"), stored.with_name("x.lock")]
    new = stored.with_name("y.2.ff.tmp")
    for path in (*old, new):
        path.touch()
    for path in old:
        age(path, 7200)
    eviction.sweep(cache.status().directory, 1 << 30)
    assert sorted(os.listdir(stored.parent)) == sorted([stored.name, new.name])


def test_load_of_a_file_evicted_meanwhile(cache, stored):
    stored.unlink()
    assert cache.load(KEY) is None


# Processes


def test_one_of_many_processes_compiles(cache):
    racers = [start("race", cache) for _ in range(4)]
    said = [racer.communicate(timeout=60)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 4
    assert sorted(said) == ["", "", "", "compiled\n"]
    assert os.listdir(cache.status().directory / "ab") == [f"{KEY}.neff"]


def test_one_of_many_threads_compiles(cache):
    compiled = []

    def compile():
        compiled.append(1)
        time.sleep(0.05)
        return child.container(KEY)

    threads = [threading.Thread(target=cache.load_or_compile, args=(KEY, compile)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1


def test_killed_holder_does_not_block(cache):
    holder = start("hold", cache)
    assert holder.stdout.readline() == "locked\n"
    cache.lock_timeout = 0.05
    with pytest.warns(RuntimeWarning, match="compiling it here too"), cache.lock(KEY) as locked:
        assert not locked
    with cache.lock(OTHER) as locked:
        assert locked
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    cache.lock_timeout = 2.0  # its forked child lives longer
    with cache.lock(KEY) as locked:
        assert locked


def test_lock_file_removed_between_open_and_lock(cache, monkeypatch):
    path = cache.status().directory / "ab" / f"{KEY}.lock"
    locked_files = []
    real = file_lock.fcntl.flock

    def flock(descriptor, operation):
        if not locked_files:
            path.unlink()  # as the last holder does
        locked_files.append(os.fstat(descriptor))
        real(descriptor, operation)

    monkeypatch.setattr(file_lock.fcntl, "flock", flock)
    with cache.lock(KEY) as locked:
        assert locked
        assert len(locked_files) == 2
        assert os.path.samestat(path.stat(), locked_files[-1])


def test_lock_is_released_by_errors_and_leaves_no_file(cache):
    for _ in range(2):
        with pytest.raises(KeyError), cache.lock(KEY) as locked:
            assert locked
            raise KeyError
    assert os.listdir(cache.status().directory / "ab") == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOLCK, errno.ENOSPC])
def test_no_lock_where_there_can_be_none(cache, monkeypatch, number):
    monkeypatch.setattr(file_lock.fcntl, "flock", failing(number))
    with cache.lock(KEY) as locked:
        assert not locked
    assert not file_lock._held


def test_modules_need_only_the_standard_library(cache):
    process = start("imports", cache)
    assert process.communicate(timeout=60)[0] == "\n"


# For the command line


def test_entries(cache, stored):
    bad = stored.with_name("ab" + "2" * 62 + ".neff")
    bad.write_bytes(b"?")
    listed = {entry.key: entry for entry in cache.entries()}
    assert listed[KEY].op == "aten::add.Tensor"
    assert listed[KEY].size == stored.stat().st_size
    assert abs(listed[KEY].last_used - time.time()) < 60
    assert listed[bad.stem].op is None


def test_verify_finds_and_keeps_bad_files(cache, stored):
    cache.store(child.container(OTHER))
    data = bytearray(stored.read_bytes())
    data[-50] ^= 1
    stored.write_bytes(data)
    [bad] = cache.verify()
    assert bad.path == stored
    assert "checksum" in bad.reason
    assert stored.exists()


def test_clear(cache, stored):
    cache.store(child.container(OTHER))
    assert cache.clear() == 2
    assert list(cache.entries()) == []
    cache.store(child.container(KEY))
    assert cache.load(KEY) is not None


def test_stray_files_are_left_alone(cache, stored):
    root = cache.status().directory
    (root / "README").touch()
    (root / "longer").mkdir()
    (root / "longer" / "a.neff").touch()
    assert cache.clear() == 1
    assert (root / "README").exists()
    assert (root / "longer" / "a.neff").exists()
    assert Path(root).is_dir()
