"""Where the cache lives and whether its folder can be trusted."""

import os
import stat
import warnings
from pathlib import Path

import pytest

from torch_neuronx.compiler import cache_settings
from torch_neuronx.compiler.cache_settings import DEFAULT_LIMIT, parse_size, prepare, read

SOMEBODY = 12345


def belongs_to(monkeypatch, user):
    """Root may write everywhere and owns what it makes: pretend to be a plain user beside another one."""
    monkeypatch.setattr(os, "geteuid", lambda: user)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("512M", 512 << 20),
        ("2g", 2 << 30),
        ("1.5 GiB", 3 << 29),
        ("1T", 1 << 40),
        ("4KB", 4096),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "1e9", "2P", "M", "1 2", "nan"])
def test_not_sizes(text):
    with pytest.raises(ValueError, match="512M"):
        parse_size(text)


def test_a_broken_size_is_the_default_and_a_warning():
    with pytest.warns(RuntimeWarning, match="TORCH_NEURONX_NEFF_CACHE_SIZE: 'lots' is not a size"):
        assert read({"TORCH_NEURONX_NEFF_CACHE_SIZE": "lots", "HOME": "/"}).limit_bytes == DEFAULT_LIMIT


def test_a_broken_switch_is_off_and_a_warning():
    with pytest.warns(RuntimeWarning, match="TORCH_NEURONX_DISABLE_NEFF_CACHE: 'maybe'"):
        assert read({"TORCH_NEURONX_DISABLE_NEFF_CACHE": "maybe"}).reason is None


@pytest.mark.parametrize(
    ("value", "disabled"), [("1", True), ("True", True), ("0", False), ("", False), ("off", False)]
)
def test_switch(value, disabled):
    settings = read({"TORCH_NEURONX_DISABLE_NEFF_CACHE": value})
    assert (settings.directory is None) == disabled


def test_size_zero_disables():
    assert "SIZE is 0" in read({"TORCH_NEURONX_NEFF_CACHE_SIZE": "0"}).reason


def test_directories(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir(tmp_path)
    tail = Path("torch_neuronx/neff")
    assert read({}).directory == Path("/home/me/.cache") / tail
    assert read({"XDG_CACHE_HOME": "/xdg"}).directory == Path("/xdg") / tail
    assert read({"XDG_CACHE_HOME": "relative"}).directory == Path("/home/me/.cache") / tail
    assert read({"TORCH_NEURONX_NEFF_CACHE_DIR": "~/here"}).directory == Path("/home/me/here")
    assert read({"TORCH_NEURONX_NEFF_CACHE_DIR": "here"}).directory == tmp_path / "here"


def test_no_home(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert "no home" in read({}).reason


def test_prepare_makes_private_directories(tmp_path):
    old = os.umask(0)
    try:
        assert prepare(tmp_path / "a" / "b") is None
    finally:
        os.umask(old)
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("mode", "good"), [(0o700, True), (0o755, True), (0o500, True), (0o775, False), (0o1777, False)]
)
def test_others_must_not_write(tmp_path, mode, good):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    reason = prepare(tmp_path / "cache")
    assert reason is None if good else "chmod 700" in reason


def test_somebody_elses_directory_is_refused(tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(tmp_path, SOMEBODY, SOMEBODY)
    assert "belongs to user 12345" in prepare(tmp_path)
    belongs_to(monkeypatch, SOMEBODY)
    assert prepare(tmp_path) is None


def test_roots_directory_serves_everybody(tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root makes root's folders")
    belongs_to(monkeypatch, SOMEBODY)
    assert prepare(tmp_path) is None


def test_links(tmp_path):
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("target")
    assert prepare(tmp_path / "link") is None
    if os.geteuid() == 0:
        os.chown(tmp_path / "link", SOMEBODY, SOMEBODY, follow_symlinks=False)
        assert "belongs to user" in prepare(tmp_path / "link")
        (tmp_path / "theirs").symlink_to("target")
        os.chown(tmp_path / "target", SOMEBODY, SOMEBODY)
        assert "belongs to user" in prepare(tmp_path / "theirs")


def test_what_cannot_be_a_directory(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    assert "not a directory" in prepare(tmp_path / "file")
    assert "cannot be made" in prepare(tmp_path / "file" / "below")
    assert "cannot be made" in prepare(tmp_path / "dangling")
    assert "cannot be made" in prepare(Path("/proc/no/such"))


def test_good_values_do_not_warn(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read({cache_settings.SIZE_VARIABLE: "1G", cache_settings.DISABLE_VARIABLE: "0"})
