"""How the bytes of a data file are found, downloaded and checked.

A file is known by the SHA256 of its content, with gzip taken off. Whatever the packing
and wherever the bytes come from, the same content is parsed or none. Every look at a
file verifies it, so what the loaders parse is what was verified.
"""

import gzip
import hashlib
import http.client
import io
import logging
import os
import re
import ssl
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from sklearn.datasets import get_data_home

logger = logging.getLogger(__name__)

VARIABLE = "SKLEARN_CLUE_DATA"
TIMEOUT = 30.0  # seconds without a byte
# What no file may exceed, as served and unpacked: several times the largest one there
# is. A server or a file that has more to give is not the one we are looking for.
MAX_SERVED = 64 << 20
MAX_CONTENT = 256 << 20
# A living download writes to its part every TIMEOUT or waits for its next try. A part
# that rested for longer belongs to nobody, and whoever comes next may continue it.
# Guessing wrong costs a second download and no more: the checksum decides.
ABANDONED = 600.0

_BROKEN_CONNECTION = (
    URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)
_WORTH_ANOTHER_TRY = {408, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class Source:
    """An address that serves a file, in some packing.

    Parameters
    ----------
    url : str
        Where the bytes are.
    sha256 : str
        Checksum of the bytes as served.
    unpack : callable or None, default=None
        Turns the served bytes into the content of the file. None if the content is
        served as it is, or gzipped.
    requires : str or None, default=None
        A module that `unpack` needs. The source is passed over without it.
    """

    url: str
    sha256: str
    unpack: Callable[[bytes], bytes] | None = None
    requires: str | None = None


@dataclass(frozen=True)
class DataFile:
    """A file that a loader reads.

    Parameters
    ----------
    name : str
        Its name in a data home; `.gz` at the end means that it is kept gzipped.
    sha256 : str
        Checksum of its content, with gzip taken off.
    sources : tuple of Source
        Where to download it, tried in this order.
    also : tuple of str, default=()
        Checksums of other contents that the loader can read under the same name.
    """

    name: str
    sha256: str
    sources: tuple[Source, ...]
    also: tuple[str, ...] = ()

    def __post_init__(self):
        if self.name in ("", ".", "..") or set(self.name) & set("/\\:\0"):
            raise ValueError(
                f"The name of a data file must not lead out of its folder, got "
                f"{self.name!r}. Give a bare name."
            )


class _Broken(OSError):
    """A download ended early; what was received is kept, and can be continued."""


class _Refused(OSError):
    """A source does not give the file; another try would not help."""


class _Wrong(_Refused):
    """The bytes at hand are not those of the file; they are of no use to anyone."""


def read(file, data_home=None, download_if_missing=True, n_retries=3, delay=1.0):
    """Return the verified content of a file, downloaded if need be.

    It is looked for in `data_home`, in the folder that SKLEARN_CLUE_DATA names, and in
    the folder `sklearn_clue` of scikit-learn's data home. Downloads go to `data_home`
    or, without one, to the last of these; the second is only ever read.

    Parameters
    ----------
    file : DataFile
        What to look for.
    data_home : str, path-like or None, default=None
        Where to look first, and where to put a download.
    download_if_missing : bool, default=True
        Whether to download a file that is in none of the folders.
    n_retries : int, default=3
        How often a broken download is continued, for each source.
    delay : float, default=1.0
        Seconds between tries.

    Returns
    -------
    content : bytes
        The content, with gzip taken off.
    """
    searched = []
    for folder in _folders(data_home):
        searched.append(folder)
        # Packed or not: the content is what counts.
        for name in (file.name, _other_packing(file.name)):
            path = folder / name
            try:
                with path.open("rb") as stored:
                    packed = stored.read(MAX_CONTENT + 1)
            except (FileNotFoundError, NotADirectoryError):
                continue
            return _verified(file, packed, path)
    if not download_if_missing:
        raise FileNotFoundError(
            f"{file.name} is in none of the folders {_listed(searched)}, and "
            f"download_if_missing=False. {_by_hand(file, searched[0])}"
        )
    target = searched[0] if data_home is not None else searched[-1]
    return _download(file, target, n_retries, delay)


def _folders(data_home):
    if data_home is not None:
        yield Path(data_home).expanduser()
    if os.environ.get(VARIABLE):
        yield Path(os.environ[VARIABLE]).expanduser()
    # A folder of our own: other projects keep files of the same name in there. Asking
    # for scikit-learn's data home creates it, which must not fail a mere look.
    try:
        home = Path(get_data_home())
    except OSError:
        home = Path(os.environ.get("SCIKIT_LEARN_DATA", "~/scikit_learn_data"))
    yield home.expanduser() / "sklearn_clue"


def _other_packing(name):
    return name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"


def _is_gzip(packed):
    return packed[:2] == b"\x1f\x8b"


def _sha256(content):
    return hashlib.sha256(content).hexdigest()


def _listed(folders):
    return ", ".join(repr(str(folder)) for folder in folders)


def _by_hand(file, folder):
    """Say how to get a file without us."""
    sources = " or ".join(
        f"{source.url} (SHA256 {source.sha256})"
        for source in file.sources
        if not source.requires  # it would have to be unpacked by hand as well
    )
    return (
        f"Its address is {sources}. Put it into {str(folder)!r} as "
        f"{file.name.removesuffix('.gz')!r}, or gzipped with '.gz' at the end; or name "
        f"a folder that has it as data_home or in the environment variable {VARIABLE}."
    )


def _verified(file, packed, path):
    """Take off gzip and return the content if it is what it should be."""
    try:
        content = _unpacked(packed)
        found = _sha256(content)
    except _Wrong as err:
        found = str(err)
    except (OSError, EOFError, zlib.error) as err:
        found = f"a damaged gzip file ({err})"
    if found not in (file.sha256, *file.also):
        # It may be someone else's file of that name, so it is not ours to replace.
        raise OSError(
            f"{str(path)!r} is not the {file.name} that this loader reads: its content "
            f"should have SHA256 {file.sha256}, found {found}. Delete it or move it "
            "away, and it is downloaded again; or pass another data_home."
        )
    return content


# Download -----------------------------------------------------------------------------


def _download(file, folder, n_retries, delay):
    """Get a file from the first source that has it, and keep it in a folder."""
    failures = []
    for source in file.sources:
        if source.requires and find_spec(source.requires) is None:
            failures.append(f"{source.url}: the package {source.requires} is missing")
            continue
        try:
            return _download_from(source, file, folder, n_retries, delay)
        except (_Broken, _Refused) as err:
            failures.append(f"{source.url}: {err}")
            logger.warning("No %s from %s", file.name, failures[-1])
        except OSError as err:  # the disk's, since those of the network are caught
            raise OSError(
                f"Cannot keep {file.name} in {str(folder)!r}: {err}. Pass a data_home "
                "that can be written to, or set SCIKIT_LEARN_DATA to one."
            ) from err
    raise OSError(
        f"Could not download {file.name}. {' | '.join(failures)}. "
        f"{_by_hand(file, folder)}"
    )


def _download_from(source, file, folder, n_retries, delay):
    folder.mkdir(parents=True, exist_ok=True)
    part = _claim_part(folder, f"{file.name}.{source.sha256[:8]}")
    try:
        served = _receive(source, part, n_retries, delay)
        try:
            content = (source.unpack or _unpacked)(served)
        except Exception as err:
            raise _Wrong(f"what it serves cannot be unpacked ({err})") from err
        if _sha256(content) != file.sha256:
            raise _Wrong(
                f"its content, unpacked, has SHA256 {_sha256(content)}, expected "
                f"{file.sha256}"
            )
        is_as_served = source.unpack is None and (
            _is_gzip(served) == file.name.endswith(".gz")
        )
        if not is_as_served:
            is_packed = file.name.endswith(".gz")
            part.write_bytes(gzip.compress(content, mtime=0) if is_packed else content)
        os.replace(part, folder / file.name)  # the one moment in which a file appears
    except BaseException as err:  # an interrupt, too, leaves a part to continue
        # What gets unpacked may hold more than may be kept: the original of COMPAS
        # names people. Such a part is continued within a call, not after it.
        _release_part(part, keep=source.unpack is None and not isinstance(err, _Wrong))
        raise
    return content


def _unpacked(packed):
    """Take off gzip, if any, and stop where no file of ours goes on."""
    content = packed
    if _is_gzip(packed):
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            content = stream.read(MAX_CONTENT + 1)
    if len(content) > MAX_CONTENT:
        raise _Wrong(f"more than {MAX_CONTENT} B")
    return content


def _claim_part(folder, stem):
    """Give this download a part of its own, an abandoned one if there is any.

    Two processes never write to one part: each name is used once, and a rename hands
    an abandoned part to exactly one of those who want it.
    """
    mine = folder / f"{stem}.{token_hex(4)}.part"
    for part in sorted(folder.glob(f"{stem}.*.part")):
        try:
            if part.is_symlink():  # it would lead what we write out of the folder
                continue
            if time.time() - part.stat().st_mtime < ABANDONED:
                continue
            os.rename(part, mine)
        except FileNotFoundError:  # someone was faster
            continue
        os.utime(mine)
        return mine
    mine.touch(exist_ok=False)
    return mine


def _release_part(part, keep):
    """Leave a part to whoever comes next, if it is worth it."""
    try:
        if keep and part.stat().st_size:
            os.utime(part, (0, 0))  # abandoned at once
        else:
            part.unlink()
    except OSError:
        pass  # it is gone, or the disk is; the first error is the one to tell


def _receive(source, part, n_retries, delay):
    """Fill a part with the verified bytes of a source, and return them."""
    n_left = n_retries
    while True:
        served = old = part.read_bytes()
        try:
            if _sha256(old) != source.sha256:
                _receive_rest(source.url, part)
                served = part.read_bytes()
            if _sha256(served) != source.sha256:
                raise _Wrong(
                    f"what it serves has SHA256 {_sha256(served)}, expected "
                    f"{source.sha256}"
                )
            return served
        except _Wrong:
            if not old:
                raise
            part.write_bytes(b"")  # the old bytes may be to blame, not the source
        except _Broken as err:
            if not n_left:
                raise
            n_left -= 1
            logger.warning("Trying %s again: %s", source.url, err)
            time.sleep(delay)


def _receive_rest(url, part):
    """Append what is missing to a part, or start over if the server wants to."""
    n_old = part.stat().st_size
    # Bytes as they are: an encoding on the way would spoil offsets and checksums.
    headers = {"User-Agent": "sklearn_clue", "Accept-Encoding": "identity"}
    if n_old:
        headers["Range"] = f"bytes={n_old}-"
    logger.info("Downloading %s from byte %d on", url, n_old)
    try:
        with urlopen(Request(url, headers=headers), timeout=TIMEOUT) as response:
            if response.status == 206:
                sent_range = response.headers.get("Content-Range", "")
                if not n_old or not sent_range.startswith(f"bytes {n_old}-"):
                    raise _Wrong(f"it sent {sent_range!r}, asked from byte {n_old}")
            else:
                n_old = 0  # the whole file, from a server that knows no ranges
            with part.open("ab" if n_old else "wb") as target:
                # Not response.length, which counts down as one reads.
                n_new, n_promised = 0, response.headers.get("Content-Length", "")
                while chunk := response.read(1 << 16):
                    n_new += len(chunk)
                    if n_old + n_new > MAX_SERVED:
                        raise _Wrong(f"it sends more than {MAX_SERVED} B")
                    target.write(chunk)
            # http.client does not mind if a connection ends before its time. Of a
            # length that is no number nothing follows: the checksum decides.
            if re.fullmatch("[0-9]{1,18}", n_promised) and n_new < int(n_promised):
                raise _Broken(f"the connection ended after {n_new} of {n_promised} B")
    except HTTPError as err:
        err.close()
        # 416: there is no such range, so the part is too long to be right.
        kind = _Broken if err.code in _WORTH_ANOTHER_TRY else _Refused
        kind = _Wrong if err.code == 416 else kind
        raise kind(f"it answers {err.code} {err.reason}") from err
    except _BROKEN_CONNECTION as err:
        raise _Broken(str(getattr(err, "reason", None) or err or repr(err))) from err
