"""Questions of a user study: which rows are shown, and beside which explanations.

The task is that of Section 5.2 and Appendix J of the paper. A participant sees a row
that the model is unsure about, the *context*, beside one that it is sure about, the
explanation, and says whether the model is sure about a third one, the *test* row. All
variants of the study ask the same questions and differ by the explanation alone.
"""

from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from sklearn_clue import _tables
from sklearn_clue._columns import Strangers
from sklearn_clue._validation import check_count, listing
from sklearn_clue.encoding import TabularEncoder, encode_quietly
from sklearn_clue.explanation import Explanation
from sklearn_clue.study._methods import (
    check_explainers,
    check_same_model,
    is_random,
    is_table,
)
from sklearn_clue.study._pages import CONSENT, TITLE, write_pages
from sklearn_clue.study._pairs import (
    Pool,
    check_pairs,
    check_size,
    pick_example,
    pick_pairs,
)
from sklearn_clue.uncertainty import Uncertainty

# The paper asks about 10 rows that the model is sure about and 8 others.
_SHARE_SURE = 10 / 18


@dataclass(frozen=True)
class Question:
    """One question: rows of the pool, by their position, and who explains.

    Parameters
    ----------
    id : str
        Names the question within its variant. The same rows have the same name in all
        variants, so that answers can be compared item by item.

    variant : str
        The variant of the study that it belongs to.

    method : str
        Name of the method that explains the context.

    context : int
        The row that the model is unsure about.

    test : int
        The row that the participant is asked about.

    test_is_sure : bool
        The right answer.

    difficulty : float
        How near the test row is to the threshold between sure and unsure, from 0 to 1:
        its rank among the rows on the same side.
    """

    id: str
    variant: str
    method: str
    context: int
    test: int
    test_is_sure: bool
    difficulty: float


class Seen(NamedTuple):
    """What a participant sees: three tables of one row, in the columns of the pool.

    Parameters
    ----------
    context : {ndarray, DataFrame} of shape (1, n_features)
        The row that the model is unsure about.

    explanation : {ndarray, DataFrame} of shape (1, n_features) or None
        What would make the model sure; None where the method shows nothing.

    test : {ndarray, DataFrame} of shape (1, n_features)
        The row that the question is about.
    """

    context: Any
    explanation: Any
    test: Any


class Study:
    """Ask people whether the model is sure about a row, beside explanations of another.

    Participants see a row that the model is unsure about and its explanation, and
    predict whether the model is sure about a test row. Methods are compared by how
    often they are right. Each method makes a variant of the study, and each
    participant takes one; all variants hold the same questions in other words.

    Parameters
    ----------
    explainers : dict of str to explainer, table, "random" or None
        What explains, by name. At least one is a fitted explainer; several must
        explain the same model. The others may be

        - None: nothing is shown beside the context;
        - `"random"`: a row of the pool, taken at random from those that the model is
          sure about, which is the control of the paper;
        - a table of rows that people have picked, one for each question in the order
          of `contexts`, all of which the model is sure about.

    X_train : {array-like, DataFrame} of shape (n_train, n_features)
        Rows that the model was fitted to. They give the units in which rows are
        compared, and are not shown.

    X_pool : {array-like, DataFrame} of shape (n_pool, n_features)
        Rows that the model was not fitted to, to take questions from. Of equal rows
        the first is used.

    pick : callable, array-like of shape (n_questions, 2) or None, default=None
        Which rows to ask about: pairs of a context and a test row, as positions in
        `X_pool`, for example by people in a pilot. A callable is given the pool, with
        `X`, `encoded`, `uncertainty`, `prediction`, `is_sure` and `difficulty` of its
        rows, and returns the pairs. None picks them by the model's uncertainty:
        test rows balanced by prediction and difficulty, each with a similar context.
        Contexts of test rows that the model is sure about are as far from them as
        those of others, so that likeness alone does not tell.

    n_questions : int, default=18
        Questions per participant. With `pick`, as many as there are pairs.

    n_sure : int or None, default=None
        How many of the test rows the model is sure about. None means 10 of 18, as in
        the paper.

    random_state : int, RandomState instance or None, default=None
        Fixes the choice and the order of the questions.

    Attributes
    ----------
    questions : tuple of Question
        All questions of all variants.

    methods : tuple of str
        Names of the methods.

    variants : dict of str to tuple of Question
        The questions of each variant. There is one variant for each method, of the
        same name.

    example : Question
        For the instructions, and to be asked again as a check of attention. Its rows
        are in no question. Whatever the method, a sure row of the pool explains it, so
        that it favours none; where the method of a variant shows nothing, neither does
        `replace(study.example, variant=..., method=...)`.

    contexts : {ndarray, DataFrame} of shape (n_questions, n_features)
        The context of each question, in the order of the questions.

    feature_names : list
        Names of the columns.

    image_shape : tuple of int or None
        Shape of a row if rows are images.

    threshold : float
        Total uncertainty up to which the model counts as sure.

    See Also
    --------
    SimulatedParticipant : Learners that answer in place of people.

    Notes
    -----
    A method may fail to make the model sure of a context. What it found is shown all
    the same, and `study.explanation_of(question).is_sure` says so; to call such a row
    sure would mislead participants.

    Some answers can be guessed without any explanation, from what is known of the
    columns: compare methods with each other and with None, not with chance.

    References
    ----------
    Antorán, Bhatt, Adel, Weller, Hernández-Lobato, "Getting a CLUE: A Method for
    Explaining Uncertainty Estimates", ICLR 2021, Section 5.2 and Appendix J.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clue import NeighborExplainer
    >>> from sklearn_clue.study import Study
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame(
    ...     {"dose": rng.uniform(0, 10, 600), "age": rng.normal(50, 9, 600)}
    ... ).round(1)
    >>> y = np.where(X["dose"] + rng.normal(size=600) > 5, "works", "fails")
    >>> neighbors = NeighborExplainer(LogisticRegression()).fit(X[:300], y[:300])
    >>> study = Study(
    ...     {"neighbors": neighbors, "none": None}, X[:300], X[300:], random_state=0
    ... )
    >>> study
    <Study of 18 questions in 2 variants: neighbors, none>
    >>> question = study.variants["neighbors"][0]
    >>> seen = study.seen(question)
    >>> pd.concat(seen, keys=seen._fields).droplevel(1)
                 dose   age
    context       4.2  55.4
    explanation   4.0  55.4
    test          1.9  55.2
    >>> question.test_is_sure
    True
    """

    def __init__(
        self,
        explainers,
        X_train,
        X_pool,
        *,
        pick=None,
        n_questions=18,
        n_sure=None,
        random_state=None,
    ):
        judges = check_explainers(explainers)
        n_sure = _check_counts(n_questions, n_sure)
        self._judge = judge = next(iter(judges.values()))
        X_pool = judge._check_rows(X_pool, reset=False)
        uncertainty = check_same_model(judges, X_pool)
        shapes = [each._image_shape for each in judges.values()]
        rng = check_random_state(random_state)
        self.methods = tuple(explainers)
        self.feature_names = _tables.names(X_pool)
        self.image_shape = next((shape for shape in shapes if shape), None)
        self.threshold = float(judge.threshold_)
        self._encoder = self._fit_encoder(X_train)
        self._pool = Pool(
            X_pool,
            self.encode(X_pool),
            uncertainty,
            np.asarray(judge.predict(X_pool)),
            self.threshold,
        )
        pairs = self._pick(pick, n_questions, n_sure, explainers, rng)
        rows_of = self._check_tables(explainers, pairs)
        context, test, sure_row = pick_example(self._pool, pairs, rng)
        rows_of |= self._draw_rows(explainers, pairs, (test, sure_row), rng)
        width = max(2, len(str(len(pairs))))
        self.variants = {
            name: tuple(
                self._question(f"q{place:0{width}d}", name, *pair)
                for place, pair in enumerate(pairs, start=1)
            )
            for name in explainers
        }
        self.questions = tuple(q for asked in self.variants.values() for q in asked)
        self._places = {
            q.id: place for place, q in enumerate(self.variants[self.methods[0]])
        }
        self.contexts = _tables.take(X_pool, pairs[:, 0])
        self._explanations = {
            name: self._explain(name, explainers[name], rows_of.get(name))
            for name in explainers
        }
        shows = [name for name in explainers if explainers[name] is not None]
        self.example = self._question("example", shows[0], context, test)
        self._example_explanation = self._by_rows(
            "Example", *(_tables.take(X_pool, [row]) for row in (context, sure_row))
        )

    def __repr__(self):
        return (
            f"<Study of {len(self.contexts)} questions in {len(self.variants)} "
            f"variants: {', '.join(self.variants)}>"
        )

    # What participants see --------------------------------------------------------

    def seen(self, question):
        """Give the rows that a participant sees.

        Parameters
        ----------
        question : Question
            A question of the study, or its example.

        Returns
        -------
        seen : Seen
            `context`, `explanation` and `test`, each a table of one row like the pool,
            or None for an explanation that is not shown.
        """
        asked, place = self._find(question)
        table = None if asked is None else asked.counterfactuals
        context, test = (
            _tables.take(self._pool.X, [row])
            for row in (question.context, question.test)
        )
        return Seen(
            context, None if table is None else _tables.take(table, [place]), test
        )

    def seen_in(self, variant):
        """Give the rows that participants see in all questions of a variant.

        Parameters
        ----------
        variant : str
            Name of the variant.

        Returns
        -------
        seen : Seen
            Like that of :meth:`seen`, with one row per question.
        """
        tests = [question.test for question in self.variants[variant]]
        explanation = self._explanations[variant]
        return Seen(
            self.contexts,
            None if explanation is None else explanation.counterfactuals,
            _tables.take(self._pool.X, tests),
        )

    def explanation_of(self, question):
        """Give the explanation of the context, for words and pictures.

        Parameters
        ----------
        question : Question
            A question of the study, or its example.

        Returns
        -------
        explanation : Explanation of one row or None
            What the method found; None if it shows nothing. Of rows that were picked by
            people or at random, and of the example, it says what the model makes of
            them.
        """
        explanation, place = self._find(question)
        return None if explanation is None else explanation[place]

    def _find(self, question):
        """The explanations that hold that of a question, and its place in them."""
        if question.method not in self._explanations:
            raise ValueError(
                f"The study has no method {question.method!r}. It compares "
                f"{listing(self.methods)}."
            )
        explanation = self._explanations[question.method]
        if question.id == self.example.id:
            shown = None if explanation is None else self._example_explanation
            return shown, 0
        if question.id not in self._places:
            raise ValueError(
                f"The study has no question {question.id!r}. Its questions are "
                f"{listing(list(self._places))}."
            )
        return explanation, self._places[question.id]

    def encode(self, X):
        """Take rows to numbers that can be compared.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows like those of the pool.

        Returns
        -------
        X_encoded : ndarray of shape (n_samples, n_encoded)
            Standard scores and indicators, or pixels from 0 to 1.
        """
        if self._encoder is None:
            pixels = np.asarray(X)
            return pixels / 255 if pixels.dtype.kind in "iu" else pixels.astype(float)
        return encode_quietly(self._encoder, X, Strangers())

    def to_frame(self):
        """List the questions.

        Returns
        -------
        frame : pandas.DataFrame
            One line per question of each variant: the fields of `Question`,
            `distance` (l1, of the test row from the context), `explanation_distance`
            (of the explanation from the context) and `explanation_is_sure` (missing
            where nothing is shown).
        """
        frame = pd.DataFrame([asdict(question) for question in self.questions])
        x = self._pool.encoded
        frame["distance"] = np.abs(x[frame["context"]] - x[frame["test"]]).sum(axis=1)
        distances, verdicts = [], []
        for variant, explanation in self._explanations.items():
            context, shown, _ = self.seen_in(variant)
            if shown is None:
                distances.append(np.full(len(context), np.nan))
                verdicts += [None] * len(context)
                continue
            change = self.encode(shown) - self.encode(context)
            distances.append(np.abs(change).sum(axis=1))
            verdicts += self._is_sure(explanation.uncertainty_after).tolist()
        frame["explanation_distance"] = np.concatenate(distances)
        frame["explanation_is_sure"] = pd.array(verdicts, dtype="boolean")
        return frame

    def to_html(
        self,
        folder,
        *,
        one_page=False,
        title=TITLE,
        consent=CONSENT,
        instructions=None,
        labels=None,
        n_checks=2,
        post_to=None,
    ):
        """Write the pages that participants open, and the key to their answers.

        A page asks for consent, shows a worked example and one question per screen, in
        an order drawn for each participant, and measures how long each was visible. A
        closed page goes on where it was left. It holds all that it needs, runs without
        a server, and says neither the right answers nor the method.

        Parameters
        ----------
        folder : str or os.PathLike
            Where to write: pages into its folder `pages`, to be handed out, and
            `key.json`, which holds the right answers and must not be.

        one_page : bool, default=False
            Whether to write one page, `index.html`, that draws a variant for each
            participant; an address that ends in `?variant=2` chooses it. By default
            each variant has a page of its own, `variant-1.html` and so on.

        title : str, default="When is the model sure?"
            Heading of the first screen.

        consent : str, optional
            What participants agree to, with empty lines between paragraphs. The page
            adds what it records.

        instructions : str, default=None
            What participants have to know, above the worked example. None explains the
            task.

        labels : dict, default=None
            What columns are called on the pages, by their names, such as
            `{"credit_amount": "Amount of the credit (€)"}`; others keep their names.

        n_checks : int, default=2
            How often the worked example is asked again, to check attention.

        post_to : str, default=None
            An address that the answers are sent to at the end: by POST, as JSON in
            plain text, which a server on another host must allow by the header
            `Access-Control-Allow-Origin`. None sends nothing, and participants save a
            file.

        Returns
        -------
        paths : list of pathlib.Path
            The pages. An address that ends in `?participant=CODE` tells them whom they
            ask; otherwise a code is drawn.

        See Also
        --------
        read_answers : Reads what participants have saved or sent.
        """
        return write_pages(
            self,
            folder,
            one_page=one_page,
            title=title,
            consent=consent,
            instructions=instructions,
            labels=labels,
            n_checks=n_checks,
            post_to=post_to,
        )

    # Building ---------------------------------------------------------------------

    def _is_sure(self, parts):
        return np.asarray(parts.total) <= self.threshold

    def _fit_encoder(self, X_train):
        """Learn the units to compare rows in; None for images."""
        if self.image_shape is not None:
            return None
        X_train = self._judge._check_rows(X_train, reset=False)
        is_category = [
            column.kind == "category" for column in self._judge._space.display_schema
        ]
        # The model's own hints about odd columns were given when it was fitted.
        return TabularEncoder(is_category)._fit(X_train, give_hints=False)

    def _pick(self, pick, n_questions, n_sure, explainers, rng):
        """Pairs of a context and a test row, in the order of the questions."""
        if pick is not None:
            pairs = pick(self._pool) if callable(pick) else pick
            pairs = check_pairs(self._pool, pairs)
            n_sure = int(self._pool.is_sure[pairs[:, 1]].sum())
            n_questions = len(pairs)
        n_random = sum(is_random(each) for each in explainers.values())
        check_size(self._pool, n_sure, n_questions - n_sure, n_random * n_questions)
        if pick is not None:
            return pairs
        return rng.permutation(
            pick_pairs(self._pool, n_sure, n_questions - n_sure, rng)
        )  # whose order says nothing about the answers

    def _check_tables(self, explainers, pairs):
        """Read the rows that people have picked, by name of the method."""
        tables = {}
        for name, rows in explainers.items():
            if not is_table(rows):
                continue
            if len(rows) != len(pairs):
                raise ValueError(
                    f"{name!r} holds {len(rows)} rows, but the study asks "
                    f"{len(pairs)} questions. Give one row for each of them, in the "
                    "order of study.contexts."
                )
            rows = tables[name] = self._judge._check_rows(rows, reset=False)
            unsure = np.flatnonzero(
                ~self._is_sure(self._judge.predict_uncertainty(rows))
            )
            if len(unsure):
                raise ValueError(
                    f"{name!r} holds rows that the model is unsure about, at the "
                    f"positions {listing(unsure.tolist())}. Participants are told that "
                    "the model is sure about them: have others picked."
                )
            asked = self._pool.encoded[pairs[:, 1]]
            same = np.isclose(self.encode(rows)[:, None], asked).all(axis=2).any(axis=1)
            if same.any():
                raise ValueError(
                    f"{name!r} holds rows that a question asks about, at the positions "
                    f"{listing(np.flatnonzero(same).tolist())}. The answer would be "
                    "given away: have others picked."
                )
        return tables

    def _draw_rows(self, explainers, pairs, used, rng):
        """Rows of the control: sure ones of the pool, and none of them twice."""
        names = [name for name, each in explainers.items() if is_random(each)]
        used = self._pool.first_of(np.append(pairs.ravel(), used))
        free = np.flatnonzero(self._pool.is_free & self._pool.is_sure)
        free = np.setdiff1d(free, used)
        drawn = rng.choice(free, (len(names), len(pairs)), replace=False)
        return {
            name: _tables.take(self._pool.X, rows)
            for name, rows in zip(names, drawn, strict=True)
        }

    def _question(self, name, method, context, test):
        return Question(
            id=name,
            variant=method,
            method=method,
            context=int(context),
            test=int(test),
            test_is_sure=bool(self._pool.is_sure[test]),
            difficulty=float(self._pool.difficulty[test]),
        )

    def _explain(self, name, explainer, rows):
        """What a method shows beside the contexts; None if nothing."""
        if explainer is None:
            return None
        if rows is not None:
            return self._by_rows(name, self.contexts, rows)
        return explainer.explain(self.contexts)

    def _by_rows(self, name, X, rows):
        """Rows that somebody has picked, as an explanation."""
        judge = self._judge
        before, after = (judge.predict_uncertainty(table) for table in (X, rows))
        rows = _tables.with_columns(X, dict(enumerate(_tables.arrays(rows))))
        encoded = [self.encode(table) for table in (X, rows)]
        return Explanation(
            X=X,
            counterfactuals=rows,
            uncertainty_before=Uncertainty(*map(np.asarray, before)),
            uncertainty_after=Uncertainty(*map(np.asarray, after)),
            prediction_before=np.asarray(judge.predict(X)),
            prediction_after=np.asarray(judge.predict(rows)),
            distance=np.abs(np.subtract(*encoded)).sum(axis=1),
            schema=judge._space.display_schema,
            is_classification=judge.is_classification_,
            image_shape=self.image_shape,
            threshold=self.threshold,
            classes=getattr(judge, "classes_", None),
            encoded=encoded[0],
            encoded_counterfactuals=encoded[1],
            method=name,
        )


def _check_counts(n_questions, n_sure):
    """Read how many questions to ask, and how many of them about sure rows."""
    check_count("n_questions", n_questions)
    if n_sure is None:
        return round(_SHARE_SURE * n_questions)
    if not isinstance(n_sure, Integral) or not 0 <= n_sure <= n_questions:
        raise ValueError(
            "n_sure must be a whole number between 0 and the number of questions, "
            f"{n_questions}, got {n_sure!r}."
        )
    return int(n_sure)
