"""Run a browser in a network namespace of its own: its ports on 127.0.0.1 lead to sockets in a folder.

Run as a script, without this package: RELAY FOLDER FIRST_PORT PORTS PROGRAM ARGUMENTS…
"""

import os
import socket
import sys
import threading
from contextlib import suppress

CHUNK = 1 << 16


def main() -> None:
    folder, first, ports, *command = sys.argv[1:]
    # before the browser starts: it must find every port of its proxies open
    listeners = {
        port: socket.create_server(("127.0.0.1", port)) for port in range(int(first), int(first) + int(ports))
    }
    # before any thread: a fork copies locks as they are, but only the thread that forks
    browser = os.fork()
    if browser == 0:
        os.execv(command[0], command)
    for inherited in (3, 4):  # the pipes over which the browser is told what to do
        with suppress(OSError):
            os.close(inherited)
    for port, listener in listeners.items():
        threading.Thread(target=relay, args=(listener, f"{folder}/{port}"), daemon=True).start()
    _, status = os.waitpid(browser, 0)
    # masked: the code of a signal is negative
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def relay(listener: socket.socket, path: str) -> None:
    while True:
        inside, _ = listener.accept()
        outside = socket.socket(socket.AF_UNIX)
        try:
            outside.connect(path)
        except OSError:
            inside.close()
            outside.close()
            continue
        for pair in ((inside, outside), (outside, inside)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(CHUNK):
            target.sendall(chunk)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    main()
