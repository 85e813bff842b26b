"""A verifier's supervisor that comes up just before it is ended."""

from collections.abc import Callable

from clotho.sandbox.supervised.control import ControlDirectory


def starting_late(end: Callable[[ControlDirectory], None]) -> Callable[[ControlDirectory], None]:
    def start_and_end(control: ControlDirectory) -> None:
        if control.path.name.startswith("verifier-") and not control.was_started():
            control.alive_file.write_text("late")
        end(control)

    return start_and_end
