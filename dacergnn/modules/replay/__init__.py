"""Calls that are provably like a recorded one run its program at once; all others are recorded."""

from dacergnn.modules.replay.attempt import Attempt
from dacergnn.modules.replay.reach import FORWARDS
from dacergnn.modules.replay.recording import Recording
from dacergnn.modules.replay.replays import Replays

__all__ = ["FORWARDS", "Attempt", "Recording", "Replays"]
