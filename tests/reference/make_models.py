"""Write `models_v<version>.joblib`: every estimator as this version saves it.

    PYTHONPATH=. python tests/reference/make_models.py

Run it once after `STATE_VERSION` rises, with the oldest supported versions (those of
constraints-lowest.txt), and never overwrite a file that was released: old files must
load forever. Each holds the fitted models and what they said.
"""

import sys
from pathlib import Path

import joblib
import pandas as pd

from sklearn_clue.persistence import STATE_VERSION

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "trust"))

import zoo  # noqa: E402


def main():
    models = zoo.fitted_models()
    del models["explainer_linear"]  # scikit-learn's own state is not ours to promise
    answers = {
        name: {
            what: answer
            for what, answer in zoo.answers(name, model, n_rows=5).items()
            if not isinstance(answer, pd.DataFrame) and not what.startswith("draws")
        }
        for name, model in models.items()
    }
    path = HERE / f"models_v{STATE_VERSION}.joblib"
    joblib.dump({"models": models, "answers": answers}, path, compress=("xz", 6))
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
