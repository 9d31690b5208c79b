"""Downloads against a server on loopback that breaks every promise it can."""

import errno
import gzip
import hashlib
import os
import subprocess
import sys
import threading
import time
import tracemalloc

import pytest

from sklearn_clue.datasets import _download
from sklearn_clue.datasets._download import DataFile, Source, read


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(autouse=True)
def homes(monkeypatch, tmp_path):
    """Nothing is found by chance, and nothing waits."""
    monkeypatch.delenv("SKLEARN_CLUE_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "scikit"))
    monkeypatch.setattr(_download.time, "sleep", lambda seconds: None)


@pytest.fixture
def home(tmp_path):
    """A data home."""
    return tmp_path / "home"


@pytest.fixture
def file(server):
    """The file that the server has."""
    checksum = sha256(server.content)
    return DataFile("table.csv", checksum, (Source(server.address, checksum),))


def names(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


# Looking ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("place", ["data_home", "variable", "scikit-learn"])
def test_finds_a_file_in_each_folder(
    monkeypatch, tmp_path, file, server, place, is_packed
):
    folder = {
        "data_home": tmp_path / "home",
        "variable": tmp_path / "variable",
        "scikit-learn": tmp_path / "scikit" / "sklearn_clue",
    }[place]
    folder.mkdir(parents=True)
    monkeypatch.setenv("SKLEARN_CLUE_DATA", str(tmp_path / "variable"))
    if is_packed:
        (folder / "table.csv.gz").write_bytes(gzip.compress(server.content))
    else:
        (folder / "table.csv").write_bytes(server.content)
    assert read(file, tmp_path / "home") == server.content
    assert server.ranges == []


def test_looks_in_data_home_then_variable_then_scikit_learn(monkeypatch, tmp_path):
    contents = {"home": b"a", "variable": b"b", "scikit/sklearn_clue": b"c"}
    file = DataFile("x", sha256(b"a"), (), also=(sha256(b"b"), sha256(b"c")))
    for name, content in contents.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x").write_bytes(content)
    monkeypatch.setenv("SKLEARN_CLUE_DATA", str(tmp_path / "variable"))
    assert read(file, tmp_path / "home") == b"a"
    assert read(file) == b"b"
    monkeypatch.delenv("SKLEARN_CLUE_DATA")
    assert read(file) == b"c"


def test_says_what_is_missing_and_where_to_get_it(file, server, home, tmp_path):
    with pytest.raises(FileNotFoundError, match="download_if_missing=False") as caught:
        read(file, home, download_if_missing=False)
    for part in ("table.csv", server.address, file.sha256, str(home), "scikit"):
        assert part in str(caught.value)
    assert server.ranges == [] and not home.exists()


@pytest.mark.parametrize("damage", ["other content", "half a gzip file"])
def test_never_reads_or_replaces_a_wrong_file(file, server, home, damage):
    content = b"someone else's"
    if damage == "half a gzip file":
        content = gzip.compress(server.content)[:-20]
    home.mkdir()
    (home / "table.csv").write_bytes(content)
    with pytest.raises(OSError, match="is not the table.csv") as caught:
        read(file, home)
    assert file.sha256 in str(caught.value) and "Delete it" in str(caught.value)
    assert (home / "table.csv").read_bytes() == content
    assert server.ranges == []


# Downloading --------------------------------------------------------------------------


def test_downloads_once(file, server, home):
    assert read(file, home) == server.content
    assert read(file, home) == server.content
    assert server.ranges == [None]
    assert names(home) == ["table.csv"]


def test_downloads_to_scikit_learn_by_default(file, server, tmp_path, monkeypatch):
    (tmp_path / "variable").mkdir()
    monkeypatch.setenv("SKLEARN_CLUE_DATA", str(tmp_path / "variable"))
    read(file)
    assert names(tmp_path / "scikit" / "sklearn_clue") == ["table.csv"]
    assert names(tmp_path / "variable") == []


def test_repacks_what_is_served_plain(server, home):
    checksum = sha256(server.content)
    file = DataFile("table.csv.gz", checksum, (Source(server.address, checksum),))
    assert read(file, home) == server.content
    assert gzip.decompress((home / "table.csv.gz").read_bytes()) == server.content
    assert read(file, home) == server.content


def test_keeps_what_is_served_packed(server, home):
    content, server.content = server.content, gzip.compress(server.content)
    source = Source(server.address, sha256(server.content))
    file = DataFile("table.csv.gz", sha256(content), (source,))
    assert read(file, home) == content
    assert (home / "table.csv.gz").read_bytes() == server.content


def test_refuses_a_wrong_checksum(file, server, home):
    served = server.content = b"a page that asks to log in"
    with pytest.raises(OSError, match="what it serves has SHA256") as caught:
        read(file, home)
    for part in ("table.csv", server.address, file.sha256, sha256(served)):
        assert part in str(caught.value)
    assert server.ranges == [None]  # more of the same would not help
    assert names(home) == []


def test_refuses_content_that_unpacks_to_something_else(server, home):
    source = Source(server.address, sha256(server.content), unpack=bytes.upper)
    with pytest.raises(OSError, match="its content, unpacked, has"):
        read(DataFile("table.csv", sha256(b"else"), (source,)), home)
    assert names(home) == []


def test_refuses_what_cannot_be_unpacked(server, home):
    source = Source(server.address, sha256(server.content), unpack=gzip.decompress)
    with pytest.raises(OSError, match="cannot be unpacked"):
        read(DataFile("table.csv", sha256(b"else"), (source,)), home)
    assert names(home) == []


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_continues_a_truncated_body(file, server, home, knows_ranges):
    server.knows_ranges = knows_ranges
    server.breaks = [1000, 500]
    assert read(file, home, n_retries=2) == server.content
    # Without ranges each answer starts over.
    second = "bytes=1500-" if knows_ranges else "bytes=500-"
    assert server.ranges == [None, "bytes=1000-", second]
    assert names(home) == ["table.csv"]


def test_a_later_call_continues_a_broken_download(file, server, home):
    server.breaks = [1000]
    with pytest.raises(OSError, match="ended after 1000 of 16384 B") as caught:
        read(file, home, n_retries=0)
    assert server.address in str(caught.value) and file.sha256 in str(caught.value)
    assert [name.rsplit(".", 1)[1] for name in names(home)] == ["part"]
    with pytest.raises(FileNotFoundError):  # a part is not a file
        read(file, home, download_if_missing=False)
    assert read(file, home, n_retries=0) == server.content
    assert server.ranges == [None, "bytes=1000-"]
    assert names(home) == ["table.csv"]


def test_a_later_call_continues_an_interrupted_download(
    file, server, home, monkeypatch
):
    def interrupt(seconds):
        raise KeyboardInterrupt

    server.breaks = [1000]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(_download.time, "sleep", interrupt)
        read(file, home)
    assert read(file, home) == server.content
    assert server.ranges == [None, "bytes=1000-"]


def test_the_next_address_continues_the_part_of_the_last(server, home):
    checksum = sha256(server.content)
    sources = tuple(Source(f"{server.address}{i}", checksum) for i in range(3))
    server.breaks, server.codes = [1000], [None, 404, None]
    file = DataFile("table.csv", checksum, sources)
    assert read(file, home, n_retries=0) == server.content
    assert server.ranges == [None, "bytes=1000-", "bytes=1000-"]


@pytest.mark.parametrize("part", [b"wrong bytes", b"x" * 100_000])
def test_starts_over_if_a_part_is_wrong(file, server, home, part):
    home.mkdir()
    path = home / f"table.csv.{file.sha256[:8]}.0123.part"
    path.write_bytes(part)
    os.utime(path, (0, 0))
    assert read(file, home, n_retries=0) == server.content
    assert server.ranges == [f"bytes={len(part)}-", None]
    assert names(home) == ["table.csv"]


def test_starts_over_if_the_server_sends_another_range(file, server, home):
    server.breaks, server.range_shift = [1000], 7
    assert read(file, home, n_retries=1) == server.content
    assert server.ranges == [None, "bytes=1000-", None]


def test_a_complete_part_needs_no_download(file, server, home):
    home.mkdir()
    path = home / f"table.csv.{file.sha256[:8]}.0123.part"
    path.write_bytes(server.content)
    os.utime(path, (0, 0))
    assert read(file, home) == server.content
    assert server.ranges == []


@pytest.mark.parametrize("age, is_taken", [(5, False), (3600, True)])
def test_takes_over_the_part_of_a_dead_process_only(file, server, home, age, is_taken):
    home.mkdir()
    path = home / f"table.csv.{file.sha256[:8]}.0123.part"
    path.write_bytes(server.content[:1000])
    os.utime(path, (time.time() - age,) * 2)
    assert read(file, home) == server.content
    assert server.ranges == ["bytes=1000-" if is_taken else None]
    assert path.exists() != is_taken


def test_tries_a_busy_server_again(file, server, home):
    server.codes = [503, 429]
    assert read(file, home, n_retries=2) == server.content
    server.codes = [503, 503]
    (home / "table.csv").unlink()
    with pytest.raises(OSError, match="it answers 503"):
        read(file, home, n_retries=1)


def test_does_not_insist_on_a_404(file, server, home):
    server.codes = [404]
    with pytest.raises(OSError, match="Could not download table.csv") as caught:
        read(file, home)
    for part in ("it answers 404", server.address, file.sha256, str(home)):
        assert part in str(caught.value)
    assert server.ranges == [None]
    assert names(home) == []


def test_gives_up_on_a_silent_server(file, server, home, monkeypatch):
    monkeypatch.setattr(_download, "TIMEOUT", 0.05)
    server.pause = 0.3
    with pytest.raises(OSError, match="timed out"):
        read(file, home, n_retries=0)


def test_says_so_when_offline(server, home):
    address = "http://127.0.0.1:9/file"  # discard: nobody listens
    file = DataFile("table.csv", "0" * 64, (Source(address, "0" * 64),))
    with pytest.raises(OSError, match="(?i)refused") as caught:
        read(file, home, n_retries=1)
    for part in ("table.csv", address, "0" * 64, "SKLEARN_CLUE_DATA"):
        assert part in str(caught.value)


def test_passes_over_a_source_that_needs_a_missing_package(file, server, home):
    needy = Source("http://127.0.0.1:9/file", "0" * 64, bytes, requires="no_such_thing")
    file = DataFile(file.name, file.sha256, (needy, *file.sources))
    assert read(file, home) == server.content
    with pytest.raises(OSError, match="the package no_such_thing is missing"):
        read(DataFile("other.csv", file.sha256, (needy,)), home)


def test_leaves_nothing_of_what_may_not_be_kept(server, home):
    source = Source(server.address, sha256(server.content), unpack=lambda served: b"ok")
    file = DataFile("table.csv", sha256(b"ok"), (source,))
    server.breaks = [1000]
    with pytest.raises(OSError, match="ended after"):
        read(file, home, n_retries=0)
    assert names(home) == []
    assert read(file, home) == b"ok"
    assert (home / "table.csv").read_bytes() == b"ok"
    assert names(home) == ["table.csv"]


@pytest.mark.parametrize("length", ["many", "-1", "1.5", "", "9" * 5000, "０"])
def test_a_length_that_is_no_number_says_nothing(file, server, home, length):
    server.length = length.encode().decode("latin-1")
    assert read(file, home) == server.content
    server.content = server.content[:-1]  # and the checksum decides
    (home / "table.csv").unlink()
    with pytest.raises(OSError, match="what it serves has SHA256"):
        read(file, home, n_retries=0)


def test_stops_a_server_that_does_not_stop(file, server, home, monkeypatch):
    monkeypatch.setattr(_download, "MAX_SERVED", 200_000)
    server.content = bytes(10_000_000)
    largest = []
    write = _download.Path.open

    def watch(path, *args, **kwargs):
        if path.exists():
            largest.append(path.stat().st_size)
        return write(path, *args, **kwargs)

    monkeypatch.setattr(_download.Path, "open", watch)
    with pytest.raises(OSError, match="it sends more than 200000 B"):
        read(file, home)
    assert max(largest, default=0) <= 200_000 and names(home) == []
    assert server.ranges == [None]


BOMB = gzip.compress(bytes(30_000_000))  # 29 kB


def test_a_small_gzip_file_that_unpacks_to_a_lot(server, home, monkeypatch):
    """Wherever it comes from, no more than the limit is unpacked."""
    monkeypatch.setattr(_download, "MAX_CONTENT", 1_000_000)
    server.content = BOMB
    file = DataFile("t.csv", "0" * 64, (Source(server.address, sha256(BOMB)),))
    tracemalloc.start()
    with pytest.raises(OSError, match="cannot be unpacked .more than 1000000 B"):
        read(file, home)
    assert names(home) == []
    home.mkdir(exist_ok=True)
    (home / "t.csv.gz").write_bytes(BOMB)
    with pytest.raises(OSError, match="found more than 1000000 B"):
        read(file, home)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


def test_a_large_file_in_the_way_is_not_read_to_its_end(home, monkeypatch):
    monkeypatch.setattr(_download, "MAX_CONTENT", 1_000_000)
    home.mkdir()
    with (home / "t.csv").open("wb") as stored:
        stored.truncate(1 << 32)  # holds nothing, and takes no room
    with pytest.raises(OSError, match="found more than 1000000 B"):
        read(DataFile("t.csv", "0" * 64, ()), home)


def test_checks_before_it_unpacks(server, home, monkeypatch):
    """Bytes that are not the expected ones are never handed to an unpacker."""
    source = Source(server.address, "0" * 64, unpack=lambda served: pytest.fail())
    with pytest.raises(OSError, match="what it serves has SHA256"):
        read(DataFile("t.csv", sha256(b"x"), (source,)), home)
    server.content = BOMB
    monkeypatch.setattr(_download, "_unpacked", lambda served: pytest.fail())
    source = Source(server.address, "0" * 64)
    with pytest.raises(OSError, match="what it serves has SHA256"):
        read(DataFile("t.csv.gz", sha256(b"x"), (source,)), home)


# Disks --------------------------------------------------------------------------------


def test_says_so_if_data_home_cannot_be_written_to(file, tmp_path):
    # A file where a folder should be stops root as well, unlike a missing permission.
    (tmp_path / "a file").touch()
    with pytest.raises(OSError, match="Cannot keep table.csv in") as caught:
        read(file, tmp_path / "a file" / "home")
    assert "data_home that can be written to" in str(caught.value)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere"
)
def test_says_so_if_data_home_is_read_only(file, home):
    home.mkdir(mode=0o500)
    with pytest.raises(OSError, match="Cannot keep table.csv in"):
        read(file, home)


@pytest.mark.parametrize("step", ["mkdir", "touch", "write_bytes"])
def test_says_so_if_the_disk_refuses(file, server, home, monkeypatch, step):
    def refuse(*args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    if step == "write_bytes":  # reached when the content is packed anew
        file = DataFile("table.csv.gz", file.sha256, file.sources)
    monkeypatch.setattr(_download.Path, step, refuse)
    with pytest.raises(OSError, match="Cannot keep .*Read-only file system"):
        read(file, home)


def test_looks_even_if_scikit_learn_has_no_home(file, server, home, monkeypatch):
    def refuse():
        raise PermissionError("no home")

    monkeypatch.setattr(_download, "get_data_home", refuse)
    with pytest.raises(FileNotFoundError, match="is in none of"):
        read(file, download_if_missing=False)
    assert read(file, home) == server.content


def test_two_processes_at_once(file, server, home):
    # The module is loaded alone, with a stand-in for scikit-learn: the real imports
    # take seconds and have no part in this.
    code = """
import importlib.util, sys, types
stand_in = types.SimpleNamespace(get_data_home=lambda: sys.argv[4] + "/none")
sys.modules |= {"sklearn": stand_in, "sklearn.datasets": stand_in}
spec = importlib.util.spec_from_file_location("_download", sys.argv[1])
module = sys.modules["_download"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print("ready", flush=True)
sys.stdin.readline()
source = module.Source(sys.argv[2], sys.argv[3])
file = module.DataFile("table.csv", sys.argv[3], (source,))
print(module.hashlib.sha256(module.read(file, sys.argv[4])).hexdigest())
"""
    server.meeting = threading.Barrier(2)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code]
            + [_download.__file__, server.address, file.sha256, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0] for process in processes]
    assert answers == [file.sha256 + "\n"] * 2
    assert server.ranges == [None, None]  # neither used the part of the other
    assert names(home) == ["table.csv"]
