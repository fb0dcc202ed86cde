"""One slave's connection on the master, over a real socket and real files."""

import asyncio
import socket

from stratamq_ha.master_connection import MasterSettings
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.peer import Peer, PeerListener, PeerSettings

from stratamq.files.clock import SystemClock
from stratamq.files.real import RealFiles
from stratamq.formats.file_names import offset_name
from stratamq.formats.log_state import Role
from stratamq.formats.replication import REPORT, TRANSFER_HEAD
from stratamq.formats.store_paths import COMMIT_LOG
from tests.ha.own_logs import log_state, show

SEGMENT, TRANSFER = 65_536, 4_096


async def test_between_two_transfers_the_loop_serves_others_as_well(tmp_path):
    """Also while the slave reads as fast as the master sends."""
    path = tmp_path / COMMIT_LOG / offset_name(0)
    path.parent.mkdir()
    path.write_bytes(bytes(SEGMENT))
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * SEGMENT)  # takes all at once
    settings = MasterSettings(whole_log=True, transfer_bytes=TRANSFER)
    log = OwnLogView(SystemClock())
    show(log, log_state(Role.ASYNC_MASTER, [(7, 0)], SEGMENT, SEGMENT))
    peer = Peer(
        near, "127.0.0.1:1", RealFiles(tmp_path), log, PeerSettings(settings, settings),
        lambda: 0, PeerListener(None, lambda peer: None, None, None),
    )  # fmt: skip
    turns, sent = 0, 0
    with near, far:
        for one in (near, far):
            one.setblocking(False)
        far.sendall(REPORT.pack(0))
        serving = asyncio.ensure_future(peer.run())
        while peer.machine is None or peer.machine.next_offset < SEGMENT:
            await asyncio.sleep(0)
            now = peer.machine.next_offset if peer.machine is not None else 0
            turns, sent = turns + (now > sent), max(now, sent)
        serving.cancel()
        await asyncio.wait([serving])
        received = far.recv(2 * SEGMENT)
    peer.close()
    assert received.startswith(TRANSFER_HEAD.pack(0, TRANSFER))
    found = turns
    assert found >= SEGMENT // TRANSFER
