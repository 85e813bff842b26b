"""Resources of sandboxes in images on their host: a local sandbox's, with Apptainer in bubblewrap's place."""

import os
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from clotho.errors import InvalidInput, SandboxUnavailable
from clotho.plugins.apptainer.command import Apptainer, bind
from clotho.plugins.apptainer.view import OF_THE_SANDBOX, ImageView
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.bubblewrap import PROGRAM, SUPERVISORS_RIGHTS, View, account_files
from clotho.sandbox.local.folders import SandboxFolder
from clotho.sandbox.local.host import LAUNCH_ENVIRONMENT, LocalHost
from clotho.sandbox.local.start_files import StartFiles
from clotho.sandbox.local.users import UserRegistry
from clotho.sandbox.places import WORKSPACE
from clotho.sandbox.supervised import launch
from clotho.sandbox.supervisor import supervisor_copy

ADDED = (
    "APPTAINER",
    "SINGULARITY",
    "PS1",
    "PROMPT_COMMAND",
    "HOME",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "LD_LIBRARY_PATH",
)
"""Begin the names of variables that Apptainer and its shell add to an image's."""
ENV_SECONDS = 60.0
OF_THE_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


class ApptainerHost(LocalHost):
    isolator_name = "apptainer"

    def __init__(self, root: Path, users: UserRegistry, apptainer: Apptainer | None) -> None:
        super().__init__(root, users, None if apptainer is None else apptainer.path)
        self._apptainer = apptainer
        self._variables: dict[Path, dict[str, str]] = {}

    def view(self, folder: SandboxFolder, spec: SandboxSpec, image: Path) -> ImageView:
        return ImageView(
            folder, spec, image=image, program=self.program(), of_image=lambda: self.variables(image)
        )

    def program(self) -> Path:
        return supervisor_copy(self._root / "programs")

    def variables(self, image: Path) -> Mapping[str, str]:
        """An image's own variables. Raises InvalidInput for one in which nothing can be started."""
        if image not in self._variables:
            self._variables[image] = self._told_by(image)
        return self._variables[image]

    def _told_by(self, image: Path) -> dict[str, str]:
        self._require(SandboxSpec())
        with self._probe_folder() as folder:
            view = ImageView(folder, SandboxSpec(), image=image, program=self.program(), prefix="")
            with self._in_view(view) as (command, descriptors):
                try:
                    done = subprocess.run(
                        [*command, "env", "-0"],
                        stdin=subprocess.DEVNULL,
                        capture_output=True,
                        text=True,
                        errors="replace",
                        pass_fds=descriptors,
                        env=LAUNCH_ENVIRONMENT,
                        cwd="/",
                        timeout=ENV_SECONDS,
                    )
                except subprocess.TimeoutExpired:
                    # of the image or of a host under load: the next attempt tells
                    raise SandboxUnavailable(f"`env` doesn't end in image {image}") from None
        if done.returncode != 0:
            raise InvalidInput(f"nothing starts in image {image}: {done.stderr.strip()}")
        told = (each.partition("=") for each in done.stdout.split("\0") if each)
        own = {name: value for name, _, value in told if not name.startswith(ADDED)}
        return (
            # LANG=C is Apptainer's own, where the image has none: commands get the usual one
            own if own.get("LANG") != "C" else {name: value for name, value in own.items() if name != "LANG"}
        )

    def _require(self, spec: SandboxSpec) -> bool:
        """Require isolation, whatever a run's `unsafe_local` says: without Apptainer there is no image."""
        return super()._require(spec.model_copy(update={"unsafe_local": False}))

    def _probed(self, folder: SandboxFolder) -> View:
        """An image whose programs are this host's, so that the checks have what they call."""
        image, mounts = self._root / "probe-image", [bind("/usr", "/usr", read_only=True)]
        for name in ("dev", "etc", "home", "proc", "sys", "tmp", "usr", "var/tmp", "work"):
            (image / name).mkdir(parents=True, exist_ok=True)
        for name in OF_THE_SYSTEM:
            path = Path("/", name)
            if path.is_symlink() and not (image / name).is_symlink():
                (image / name).symlink_to(path.readlink())
            elif path.is_dir() and not path.is_symlink():
                (image / name).mkdir(exist_ok=True)
                mounts.append(bind(path, str(path), read_only=True))
        return ImageView(folder, SandboxSpec(), image=image, program=self.program(), further=tuple(mounts))

    def _fill(self, folder: SandboxFolder, user: int | None, spec: SandboxSpec) -> None:
        super()._fill(folder, user, spec)
        etc = folder.files / "etc"
        etc.mkdir(mode=0o755)
        for name, text in account_files(os.geteuid() if user is None else user).items():
            (etc / name).write_text(text)
            (etc / name).chmod(0o444)

    def _isolated(self, view: View, files: StartFiles, two_users: bool) -> list[str]:
        assert self._apptainer is not None and isinstance(view, ImageView)
        rights = ("--no-privs", "--add-caps", ",".join(SUPERVISORS_RIGHTS)) if two_users else ("--userns",)
        arguments = (*rights, "--pwd", WORKSPACE)
        command = self._apptainer.execute(view.image, tuple(view.image_mounts()), arguments)
        return [*command, PROGRAM, "within", str(files.seccomp), view.prefix]

    def _environment(self, view: View, *, isolated: bool) -> Mapping[str, str]:
        assert self._apptainer is not None
        own = {f"{OF_THE_SANDBOX}{name}": value for name, value in view.environment().items()}
        return {**LAUNCH_ENVIRONMENT, **self._apptainer.handed_on(own)}

    def _with_disk(self, folder: SandboxFolder, spec: SandboxSpec) -> AbstractContextManager[launch.Call]:
        """Start it among all of the host's mounts: an image may be on any of them."""
        return nullcontext(lambda function: function())
