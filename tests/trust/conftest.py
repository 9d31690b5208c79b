"""Fitted models that several files only ask."""

import pytest
import zoo


@pytest.fixture(scope="session")
def models():
    return zoo.fitted_models()
