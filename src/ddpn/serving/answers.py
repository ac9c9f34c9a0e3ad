"""Answers to requests: the table of predictions as rows of JSON, with distributions and members where asked for."""

from typing import Any

import numpy as np
import torch

from ddpn.distributions import discretized
from ddpn.members import label_of
from ddpn.runtime.threads import single_thread
from ddpn.serving.schemas import Wanted
from ddpn.workflow.prediction import PredictedRows
from ddpn.workflow.prediction_request import Request, quantile_name

#: The mass of a distribution that is not shown, on either side, and the most counts that are.
_UNSHOWN, _MOST_SHOWN = 5e-5, 400


def answers(predicted: PredictedRows, wanted: Wanted) -> list[dict[str, Any]]:
    """What a request asks for, row by row, ready for JSON.

    Parameters
    ----------
    predicted : PredictedRows
        The rows.
    wanted : Wanted
        What the request asks for.
    """
    predictor, outputs = predicted.predictor, wanted.outputs
    is_flagged = predictor.ood is not None and not {"ood_pvalue", "ood", "ood_reasons"}.isdisjoint(outputs)
    request = Request(
        coverage=wanted.coverage,
        quantiles=wanted.quantiles,
        pmf=wanted.pmf,
        pvalue=is_flagged,
        ood=predictor.ood.alpha if is_flagged and predictor.ood is not None else None,
        reasons="ood_reasons" in outputs,
    )
    with torch.no_grad(), single_thread():
        table = predicted.table(request)
        names = [*outputs, *(quantile_name(level) for level in wanted.quantiles)]
        found = {name: table[name].tolist() for name in names if name in table}
        if "ood_reasons" in outputs:
            # Without calibrated flags every unusual cell is named.
            known = table.get("ood_reason")
            found["ood_reasons"] = predictor.ood_reasons(predicted.X, days=predicted.days) if known is None else known
        if wanted.pmf is not None:
            found["pmf"] = np.stack([table[f"p{count}"] for count in range(wanted.pmf + 1)], axis=1).tolist()
        if "distribution" in outputs:
            found["distribution"] = _shown(predicted.counts)
        if "members" in outputs:
            found["members"] = _members(predicted)
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def _shown(counts: Any) -> list[dict[str, Any]]:
    """Where nearly all mass is: probabilities of some counts, every `step`-th where there are many."""
    levels = torch.tensor([_UNSHOWN, 1.0 - _UNSHOWN], dtype=torch.float64)
    found = []
    for row, (first, last) in enumerate(counts.summary(levels).quantiles.tolist()):
        step = max(1, int((last - first) // _MOST_SHOWN) + 1)
        every = torch.arange(first, last + 1, step, dtype=torch.float64).unsqueeze(1)
        pmf = counts.rows(torch.tensor([row])).log_prob(every).exp().double().squeeze(1)
        found.append({"first": int(first), "step": step, "pmf": pmf.tolist()})
    return found


def _members(predicted: PredictedRows) -> list[list[dict[str, Any]]]:
    """What each member of the mixture predicts."""
    predictor, columns = predicted.predictor, []
    for name, member in predictor.mixed.items():
        dist = predictor.distribution(predicted.X, predicted.exposure, of=name, upper=predicted.upper)
        about = {"name": name, "label": label_of(name, member), "weight": predictor.weights[name]}
        each = zip(dist.mean.double().tolist(), _shown(discretized(dist)), strict=True)
        columns.append([{**about, "mean": mean, "distribution": shown} for mean, shown in each])
    return [list(row) for row in zip(*columns, strict=True)]
