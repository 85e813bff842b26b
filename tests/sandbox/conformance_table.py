"""The results of each backend in the conformance suite, as a table."""

from tests.conformance_table import Results, passed_of

AREAS = {
    "jobs": "commands run at most once, end with their trees, and have bounds",
    "state": "working directory and variables from one command to the next",
    "sessions": "background jobs, terminals and their input",
    "files": "reading and writing files",
    "leases": "creation, attaching, renewal, expiry, reaping, owners",
    "losses": "whose doing the loss of a sandbox was",
    "checkpoints": "checkpoints and restores",
    "freeze": "commands stand still for a checkpoint",
    "manifest": "listings of the workspace",
    "places": "further writable folders and names",
    "verifier": "verification in an instance of its own",
    "verifier_paths": "a verifier names files as the agent did",
}
BACKENDS = {
    "local": "local",
    "bare": "local, unsafe",
    "podman": "docker, with podman",
    "commit": "the same, `checkpoint: commit`",
    "apptainer": "apptainer",
    "relay": "podman over a relay",
    "remote": "local, served over a stream",
    "ssh": "ssh",
    "modal": "modal, imitated",
    "e2b": "e2b, imitated",
    "daytona": "daytona, imitated",
    "modal-live": "modal",
    "e2b-live": "e2b",
    "daytona-live": "daytona",
}


def table(results: Results) -> str:
    lines = [f"| what | {' | '.join(BACKENDS.values())} |", f"|---|{'---|' * len(BACKENDS)}"]
    for area, meaning in AREAS.items():
        cells = (passed_of(results.get((area, kind))) for kind in BACKENDS)
        lines.append(f"| {meaning} | {' | '.join(cells)} |")
    return "\n".join(lines)
