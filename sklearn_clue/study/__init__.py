"""User studies: do explanations help people to foresee what a model is unsure about?"""

from sklearn_clue.study._analysis import analyse
from sklearn_clue.study._answers import read_answers
from sklearn_clue.study._participants import SimulatedParticipant
from sklearn_clue.study._simulation import simulate
from sklearn_clue.study._study import Study

__all__ = ["SimulatedParticipant", "Study", "analyse", "read_answers", "simulate"]
