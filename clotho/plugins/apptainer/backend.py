"""Sandboxes in images on this host: local ones, whose view Apptainer makes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from clotho.config import Settings
from clotho.errors import InvalidInput
from clotho.plugins.apptainer.command import NAMES, Apptainer
from clotho.plugins.apptainer.config import ApptainerConfig
from clotho.plugins.apptainer.host import ApptainerHost
from clotho.plugins.apptainer.images import Images
from clotho.sandbox.backend import Labels, SandboxSpec
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.config import BackendConfig
from clotho.sandbox.local.backend import REGISTRY, LocalBackend
from clotho.sandbox.local.bubblewrap import View
from clotho.sandbox.local.folders import SandboxFolder
from clotho.sandbox.local.users import RANGE, UserRegistry
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.threads import with_image, with_sandbox
from clotho.sandbox.verification import VerifierSetup


def open_apptainer(settings: Settings, folder: Path) -> tuple["ApptainerBackend", ...]:
    return (ApptainerBackend(folder / "apptainer"),)


class ApptainerBackend(LocalBackend):
    """Sandboxes below `root`, which is a folder as a local backend's."""

    _host: ApptainerHost

    def __init__(self, root: Path, *, registry: Path = REGISTRY, users: range = RANGE) -> None:
        super().__init__(root)
        self._apptainer = Apptainer.installed()
        self._host = ApptainerHost(self._root, UserRegistry(registry, users), self._apptainer)

    @property
    def names(self) -> tuple[str, ...]:
        return ("apptainer",)

    def makes(self, config: BackendConfig) -> bool:
        return isinstance(config, ApptainerConfig)

    async def system(self, lease: str) -> str:
        return await with_sandbox(lease, self._system, lease)

    async def create(
        self,
        lease: str,
        spec: SandboxSpec,
        labels: Labels | None = None,
        restore: Restore | None = None,
        private: Sequence[Path] = (),
    ) -> SupervisedSandbox:
        """Commands see no path of this host but their image: `private` ones neither."""
        config = spec.backend
        if not isinstance(config, ApptainerConfig):
            raise InvalidInput(f"sandboxes of {config.name} aren't made by Apptainer")
        image = await with_image((self._root, config.image), self._image, config.image)
        unpacked = spec.model_copy(update={"backend": ApptainerConfig(image=str(image))})
        return await with_sandbox(lease, self._create, lease, unpacked, labels, restore, ())

    async def close(self) -> None:
        """There are no connections, and sandboxes go on."""

    # ---- blocking ----

    def _system(self, lease: str) -> str:
        config = self._record_of(self._folder(lease), lease).spec.backend
        assert isinstance(config, ApptainerConfig)
        return f"{config.image} {Path(config.image).stat().st_mtime_ns}"

    def _image(self, image: str) -> Path:
        if self._apptainer is None:
            raise InvalidInput(
                f"sandboxes of apptainer need {' or '.join(NAMES)} on this host, which has neither"
            )
        self._prepare_root()
        folder = Images(self._root / "images", self._apptainer).folder(image)
        self._host.variables(folder)
        return folder

    def _view(
        self,
        folder: SandboxFolder,
        spec: SandboxSpec,
        private: Path | None = None,
        setup: VerifierSetup | None = None,
    ) -> View:
        assert isinstance(spec.backend, ApptainerConfig)
        view = self._host.view(folder, spec, Path(spec.backend.image))
        return replace(view, private=private, setup=setup)
