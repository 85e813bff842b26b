"""What disturbances of a rollout mean, in a sentence for those who meet them on a page."""

from clotho.runs.disturbances import Disturbance

MEANINGS = {
    Disturbance.SANDBOX_LOST: "Its sandbox was lost, and another one took its place.",
    Disturbance.RESTORED: "The new sandbox lacks processes or files of the lost one, or has other programs.",
    Disturbance.REPLAYED: "Commands were run again in the new sandbox, and ended as before; outputs may differ.",
    Disturbance.DIVERGED: "Commands run again in the new sandbox left other exit codes or files than before.",
    Disturbance.RESUMED: "A turn was interrupted while it was sampled, and continued from the tokens it had.",
    Disturbance.REPAIRED: "It failed for a reason outside of it, and went on from its last turn.",
    Disturbance.REPLACED: "It was begun from scratch in place of a sibling that had failed.",
    Disturbance.REWARD_ERROR: "Its score is 0 because the verifier failed.",
    Disturbance.VERIFIER_FAILED: "Its score is 0 because the agent made the verifier fail.",
    Disturbance.VERIFIED_AGAIN: "It was verified again from its last state, or another process took that over.",
    Disturbance.UNPROVED: "It lost sandboxes at one call, and nothing proves that its commands ended them.",
}
