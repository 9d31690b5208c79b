"""User studies: do explanations help people to foresee what a model is unsure about?"""

from sklearn_clue.study._participants import SimulatedParticipant
from sklearn_clue.study._study import Study

__all__ = ["SimulatedParticipant", "Study"]
