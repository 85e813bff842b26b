"""Sockets that servers listen at."""

import socket

from clotho.listeners.listening import listen


def test_no_answer_waits_until_what_was_sent_before_is_acknowledged() -> None:
    """With Nagle's algorithm a body waits 40 ms for its headers, where the client keeps its connection."""
    with listen("127.0.0.1", 0) as bound, socket.create_connection(bound.getsockname()):
        connection, _ = bound.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
