"""
A user study, answered by learners
==================================

Do explanations help people to foresee when a model will be unsure? The paper asked
forty of them. This example builds such a study in a few lines, writes its pages, and
has it answered by learners in place of people. It finds that over many questions
learners are right more often beside explanations by CLUE or by sensitivity than beside
none, and that a sure row at random does not help them; and that 18 questions are few
to see that. Learners are no substitute for people: they show that the information is
there, not that people find it.
"""

# %%
# A model of the mixed toy, and two explainers of it. Rows that it was not fitted to are
# split in two: questions for participants, and questions to practise on.

import tempfile

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.frozen import FrozenEstimator

from sklearn_clue import (
    BayesianMLPClassifier,
    CLUEExplainer,
    LocalSensitivityExplainer,
    VAEEncoder,
)
from sklearn_clue.datasets import make_mixed_toy
from sklearn_clue.study import SimulatedParticipant, Study, analyse, simulate

X, y = make_mixed_toy(4000, random_state=0, return_X_y=True)
X = X.round({"length": 1, "weight": 1})
X_train, y_train = X[:1000], y[:1000]
pool, practice_pool = X[1000:2000], X[2000:]
model = BayesianMLPClassifier((30,), random_state=0).fit(X_train, y_train)
model = FrozenEstimator(model)
methods = {
    "CLUE": CLUEExplainer(model, VAEEncoder(max_iter=30), random_state=0).fit(
        X_train, y_train
    ),
    "sensitivity": LocalSensitivityExplainer(model).fit(X_train, y_train),
    "random": "random",
    "none": None,
}

# %%
# The study has 18 questions in four variants, as in the paper. A participant takes one
# variant and sees, beside a row that the model is unsure about, what the method of this
# variant makes of it; then answers whether the model is sure about the row below.

study = Study(methods, X_train, pool, random_state=0)
question = study.variants["CLUE"][0]
seen = study.seen(question)
print(pd.concat(seen, keys=seen._fields).droplevel(1))
print(
    "the model is", "sure" if question.test_is_sure else "unsure", "about the test row"
)

# %%
# This writes a page for each variant, to put on any web server or to mail. Nothing on
# it tells the answers: the key is in a file of its own.

pages = study.to_html(tempfile.mkdtemp())
print(*(page.name for page in pages))

# %%
# How many participants does it take? If 80 % of the answers were right with one method
# and 65 % with the others, ten per variant would often not be enough.

effect = {"CLUE": 0.8, "sensitivity": 0.65, "random": 0.65, "none": 0.65}
for n_participants in (10, 20, 40):
    made = simulate(study, effect, n_participants, n_studies=25, random_state=0)
    print(f"{n_participants} per variant: found in {made.power:.0%} of the studies")

# %%
# Learners take the place of people. Each practises on sixty questions about other rows
# and then answers the study; ten take each variant. What they answer is a table like
# that of :func:`~sklearn_clue.study.read_answers`, which reads the files of people.

practice = Study(methods, X_train, practice_pool, n_questions=120, random_state=1)
answers = pd.concat(
    [
        SimulatedParticipant(n_practice=60, random_state=seed)
        .fit(practice)
        .answer(study, name=f"learner {seed}")
        for seed in range(10)
    ],
    ignore_index=True,
)
analysis = analyse(answers)
print(analysis)

# %%
# Accuracy with intervals, and what signal detection says: how well both kinds of rows
# are told apart, and whether participants would rather say "sure" or "unsure".

analysis.plot()
plt.show()

# %%
# The intervals are about other questions as well, and 18 of them leave much room: that
# of the difference between CLUE and none holds zero. The p-values are small, but they
# are about these 18 questions; and ever more learners would make them as small as one
# likes, since all learn alike. The right tool for learners is a ranking over many
# questions, with standard errors over them.

ranking = SimulatedParticipant(random_state=0).rank(practice)
print(ranking[["accuracy", "gain", "gain_error"]].round(3))

# %%
# CLUE and sensitivity add seven to ten points to the answers of those who see no
# explanation, with an error of about three. A random row adds nothing that could be
# told from chance. People in the paper were helped by CLUE, and misled by sensitivity:
# a learner reads the direction of a step from numbers, and people may not. That is
# what a study with people is for.
