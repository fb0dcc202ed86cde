"""Listening sockets."""

import socket

from stratamq.service.sockets import listen


def test_the_second_part_of_an_answer_waits_for_no_acknowledgement_of_the_first():
    with listen("127.0.0.1:0", "the test") as listener:
        listener.setblocking(True)
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
