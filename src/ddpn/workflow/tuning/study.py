"""Trials in an Optuna study with its journal: what was tried, what to try next. The only file that imports Optuna."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.members.member import arrays_from_bytes, arrays_to_bytes
from ddpn.runtime.extras import import_extra
from ddpn.storage.files import write_bytes
from ddpn.workflow.tuning.space import Choices, Settings, Space

#: In the first trials every setting keeps its default with this probability, and so many trials are of this kind.
KEEP, FIRST = 0.5, 8
#: Trials with scores that importances need.
_ENOUGH = 6
#: Trees of the forest that importances are found from: with a few dozen trials, more change no digit that matters.
_TREES = 32
#: A trial goes on if its networks are not among the worst quarter of complete trials, of which there must be so many.
_PERCENTILE, _COMPARED = 75.0, 3
_NAME, _JOURNAL, _ABOUT, _WIDTH = "ddpn", "trials.log", "trial", "width"


@dataclass
class Trial:
    """Settings that were tried, and how they scored.

    Attributes
    ----------
    settings : dict
        Values by name.
    scores : array
        CRPS of the rows scored, in the order of the folds; fewer than all rows, or none, where the trial was dropped.
    means : list of float
        Mean CRPS of each fold that was scored.
    seconds : float
        How long it took.
    elapsed : float
        Seconds of the search until its end.
    dropped : str
        Why it ended early, else "".
    number : int
        Its number, from 0, the defaults.
    networks : dict
        Validation scores of its networks at some steps of their training.
    fold_seconds : list of float
        How long each fold took.
    """

    settings: Settings
    scores: np.ndarray = field(default_factory=lambda: np.zeros(0))
    means: list[float] = field(default_factory=list)
    seconds: float = 0.0
    elapsed: float = 0.0
    dropped: str = ""
    number: int = 0
    networks: dict[int, float] = field(default_factory=dict)
    fold_seconds: list[float] = field(default_factory=list)


class _HeldLock:
    """The lock of the journal: the process holds that of the model folder already."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return None


class Study:
    """The trials of one search, in a folder of their own; a killed process loses no more than the trial it was at.

    Parameters
    ----------
    folder : Path
        Where trials are kept.
    space : dict
        Ranges and choices by name.
    seed : int
        Seed of the trials: the same seed and the same scores make the same trials.
    """

    def __init__(self, folder: Path, space: Space, seed: int) -> None:
        self._optuna = import_extra("optuna", "tune")
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.space, self.seed = folder, space, seed
        #: Trials in progress, in the order in which they were asked for.
        self._open: list[Any] = []
        storage = self._optuna.storages.JournalStorage(self._journal())
        self._study = self._optuna.create_study(
            storage=storage, study_name=_NAME, load_if_exists=True, sampler=self._sampler(0, {})
        )
        for old in self._study.get_trials(deepcopy=False, states=[self._optuna.trial.TrialState.RUNNING]):
            self._study.tell(old.number, state=self._optuna.trial.TrialState.FAIL)
        self.trials = self._known()

    def _journal(self) -> Any:
        """The journal of the trials, without what a killed process left half-written; one process has it at a time."""
        file = self.folder / _JOURNAL
        if file.exists() and not (content := file.read_bytes()).endswith(b"\n"):
            write_bytes(file, content[: content.rfind(b"\n") + 1])
        return self._optuna.storages.journal.JournalFileBackend(str(file), _HeldLock())

    @property
    def spent(self) -> float:
        """Seconds of all trials until now, those of earlier processes included."""
        return self.trials[-1].elapsed if self.trials else 0.0

    def _known(self) -> list[Trial]:
        """Trials that are over, in order; those of a killed process do not count."""
        states = self._optuna.trial.TrialState
        found = []
        for old in self._study.get_trials(deepcopy=False, states=[states.COMPLETE, states.PRUNED]):
            about = dict(old.user_attrs[_ABOUT])
            scores = arrays_from_bytes(self._file(about["number"]).read_bytes())["crps"]
            networks = {int(step): value for step, value in old.intermediate_values.items()}
            found.append(Trial(**about, scores=scores, networks=networks))
        return sorted(found, key=lambda trial: trial.number)

    def _file(self, number: int) -> Path:
        return self.folder / f"trial-{number}.safetensors"

    # Trials ------------------------------------------------------------------------------------------------------

    def ask(self, defaults: Settings) -> Settings:
        """The settings to try next; the first ones keep some of the defaults."""
        number, kept = len(self.trials) + len(self._open), {}
        if number <= FIRST:
            random = np.random.default_rng([self.seed, number])
            kept = {n: defaults[n] for n, of in self.space.items() if random.random() < KEEP and defaults[n] in of}
            kept = {} if len(kept) == len(self.space) else kept
        self._study.sampler = self._sampler(number, kept)
        self._open.append(self._study.ask(self._distributions()))
        return dict(self._open[-1].params)

    def width_of(self, slots: int) -> int:
        """How many trials run at once: what the first process of this search decided, so that a later one continues.

        Parameters
        ----------
        slots : int
            What this process would decide.
        """
        if _WIDTH not in self._study.user_attrs:
            self._study.set_user_attr(_WIDTH, slots)
        return int(self._study.user_attrs[_WIDTH])

    def _sampler(self, number: int, kept: Settings) -> Any:
        # A seed per trial: a search that is continued draws what it would have drawn.
        seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            # Trials in progress count as bad ones: others are tried beside them.
            liar = bool(self._open)
            sampler = self._optuna.samplers.TPESampler(n_startup_trials=FIRST, seed=seed, constant_liar=liar)
            return self._optuna.samplers.PartialFixedSampler(kept, sampler) if kept else sampler

    def _distributions(self) -> dict[str, Any]:
        of = self._optuna.distributions
        found = {}
        for name, values in self.space.items():
            if isinstance(values, Choices):
                found[name] = of.CategoricalDistribution(values.values)
            elif values.integer:
                found[name] = of.IntDistribution(int(values.low), int(values.high), log=True)
            else:
                found[name] = of.FloatDistribution(values.low, values.high, log=True)
        return found

    def bars(self) -> dict[int, float]:
        """By step, the largest score of networks with which a trial goes on: three of four complete trials had less.

        Only steps with scores of `_COMPARED` complete trials or more; a trial counts by its best step so far.
        """
        known = [trial.networks for trial in self.trials if not trial.dropped]
        steps = {step: [each[step] for each in known if step in each] for step in {s for each in known for s in each}}
        return {
            step: float(np.nanpercentile(values, _PERCENTILE))
            for step, values in sorted(steps.items())
            if len(values) >= _COMPARED
        }

    def tell(self, trial: Trial) -> None:
        """Keep a trial that is over: the one asked for first or, as the first of all, the defaults."""
        trial.number, states = len(self.trials), self._optuna.trial.TrialState
        write_bytes(self._file(trial.number), arrays_to_bytes(crps=trial.scores))
        plain = {n: v for n, v in vars(trial).items() if n not in ("scores", "networks")}
        if not self._open:
            self._study.add_trial(self._finished(trial, trial.networks, {_ABOUT: plain}))
        else:
            current = self._open.pop(0)
            for step, value in trial.networks.items():
                if np.isfinite(value):
                    current.report(value, step)
            current.set_user_attr(_ABOUT, plain)
            mean = None if trial.dropped else float(np.mean(trial.means))
            self._study.tell(current, mean, states.PRUNED if trial.dropped else states.COMPLETE)
        self.trials.append(trial)

    def forget(self) -> None:
        """Give up the trials in progress, which had no time to end."""
        while self._open:
            self._study.tell(self._open.pop(), state=self._optuna.trial.TrialState.FAIL)

    def _finished(self, trial: Trial, networks: dict[int, float], about: dict[str, Any], value: Any = None) -> Any:
        distributions = self._distributions()
        params = {name: v for name, v in trial.settings.items() if name in distributions and v in self.space[name]}
        return self._optuna.trial.create_trial(
            params=params,
            distributions={name: distributions[name] for name in params},
            value=float(np.mean(trial.means)) if value is None else value,
            intermediate_values=networks,
            user_attrs=about,
        )

    # What mattered -----------------------------------------------------------------------------------------------

    def importances(self, relative: Sequence[float | None]) -> dict[str, float]:
        """The share of the scores' variance that each setting explains (fANOVA), largest first; {} for few trials.

        `relative` has a score per trial, comparable between trials that were scored on different rows, or None.
        """
        scored = [(t, s) for t, s in zip(self.trials, relative, strict=True) if s is not None and np.isfinite(s)]
        whole = [(t, s) for t, s in scored if all(t.settings[name] in of for name, of in self.space.items())]
        if len(whole) < _ENOUGH or np.ptp([s for _, s in whole]) == 0.0:
            return {}
        study = self._optuna.create_study()
        for trial, score in whole:
            study.add_trial(self._finished(trial, {}, {}, float(score)))
        evaluator = self._optuna.importance.FanovaImportanceEvaluator(n_trees=_TREES, seed=self.seed)
        found = self._optuna.importance.get_param_importances(study, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}


def step_of(fold: int, third: int, metric: str) -> int:
    """The step that a score of networks is reported at; scores by different metrics have different steps."""
    return 2 * (3 * fold + third) + (metric == "crps")
