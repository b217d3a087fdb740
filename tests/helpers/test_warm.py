"""The server of forked processes, and the programs that stand for these processes."""

import os
import select
import shutil
import socket
import subprocess
import sys
from array import array
from pathlib import Path

import pytest
import warm
from conftest import environment


@pytest.fixture
def server():
    if not warm.fits(environment()):
        pytest.skip("no processes are forked")
    return warm.server()


@pytest.mark.parametrize("size", [0, 100])
def test_the_server_closes_the_files_of_a_client_that_was_killed(server, size):
    """Otherwise a reader of the client's output would wait for the end of all tests."""
    reading, writing = os.pipe()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(server.folder / "socket"))
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [writing]))
        client.sendmsg([size.to_bytes(8, "little")], [rights])
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert select.select([pipe], [], [], 60)[0]
        assert pipe.read() == b""


@pytest.mark.parametrize("answer", [b"", (2**22 + 1).to_bytes(8, "little")])
def test_a_client_whose_server_ends_has_failed(tmp_path, answer):
    shutil.copy(Path(warm.__file__).with_name("warm_client.py"), tmp_path / "python")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        words = [sys.executable, "-IS", tmp_path / "python", "-c", "pass"]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
            with listener.accept()[0] as server:
                with server.makefile("rb") as stream:
                    stream.read(int.from_bytes(stream.read(8), "little"))
                server.sendall(answer)
            assert "the warm server has ended" in process.stderr.read()
    assert process.returncode == 1
