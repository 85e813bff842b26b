"""One row of the fault matrix's cluster, played for real: a host killed whole."""

import tempfile
from pathlib import Path

import pytest

from chaos.cluster.cell import play
from chaos.cluster.faults import FAULTS
from chaos.cluster.programs import lacking
from chaos.cluster.stage import cluster_servers_in
from tests.chaos.patience import missed_with_patience


@pytest.mark.slow
@pytest.mark.skipif(lacking() is not None, reason=f"no cluster can be made here: {lacking()}")
async def test_a_host_killed_whole_costs_a_run_nothing_but_time() -> None:
    with tempfile.TemporaryDirectory(prefix="clotho-test-cluster-") as name:
        Path(name).chmod(0o711)
        async with cluster_servers_in(Path(name) / "cluster") as servers:
            result = await play(servers, "host-killed", FAULTS["host-killed"])
    assert missed_with_patience(result) == [], result
