"""Rows by case and in blocks; and the form that a GPU takes, tried here on the CPU."""

import sys

import pytest
import torch

from ddpn import DoublePoisson, NegativeBinomial
from ddpn.distributions import dispatch as rows
from ddpn.distributions.dispatch import Case, by_case, constant, in_blocks


class TestBlocks:
    def test_results_are_those_of_one_call(self):
        a, b = torch.rand(1000), torch.rand(1000, 3)
        sizes = []

        def method(a, b):
            sizes.append(len(a))
            return a * b[:, 0], b * 2

        got = in_blocks(method, rows._CPU_BLOCK // 300, a, b)
        assert len(sizes) > 1
        assert max(sizes) <= 301
        assert torch.equal(got[0], a * b[:, 0])
        assert torch.equal(got[1], b * 2)

    def test_one_row_at_least(self):
        assert in_blocks(lambda a: (a,), 10**12, torch.arange(3.0))[0].tolist() == [0.0, 1.0, 2.0]


class TestCases:
    X = torch.tensor([5.0, -1.0, 2.0, -3.0, 0.0])

    def cases(self, x, seen):
        def method(name, sign):
            def apply(x):
                seen[name] = x.tolist()
                return sign * x, x + 1.0

            return apply

        return [Case(x >= 0, method("plus", 1.0), 1), Case(x < 0, method("minus", -1.0), 1)]

    @pytest.mark.parametrize("host", [True, False])
    def test_each_row_by_its_case(self, monkeypatch, host):
        monkeypatch.setattr(rows, "is_host", lambda x: host)
        seen = {}
        size, next_one = by_case(self.cases(self.X, seen), self.X)
        assert size.tolist() == [5.0, 1.0, 2.0, 3.0, 0.0]
        assert next_one.tolist() == [6.0, 0.0, 3.0, -2.0, 1.0]
        if host:
            assert seen == {"plus": [5.0, 2.0, 0.0], "minus": [-1.0, -3.0]}

    def test_one_case_has_all(self):
        seen = {}
        assert by_case(self.cases(self.X.abs(), seen), self.X.abs())[0].tolist() == [5.0, 1.0, 2.0, 3.0, 0.0]
        assert list(seen) == ["plus"]

    @pytest.mark.parametrize("host", [True, False])
    def test_no_rows(self, monkeypatch, host):
        monkeypatch.setattr(rows, "is_host", lambda x: host)
        none = torch.zeros(0)
        assert [r.shape for r in by_case(self.cases(none, {}), none)] == [(0,), (0,)]


def test_constants_made_in_inference_mode_are_ordinary():
    with torch.inference_mode():
        kept = constant([1.0, 2.0], torch.device("cpu"))
    assert not kept.is_inference()
    assert kept.dtype == torch.float64


@pytest.fixture
def away_from_the_host(monkeypatch):
    """Every module takes its tensors for those of a GPU: no sorting of rows, fixed shapes, `where` at the end."""
    for name, module in list(sys.modules.items()):
        if name.startswith("ddpn.distributions") and hasattr(module, "is_host"):
            monkeypatch.setattr(module, "is_host", lambda x: False)


@pytest.mark.usefixtures("away_from_the_host")
class TestAwayFromTheHost:
    """The golden rows, by the path that only a GPU takes."""

    @pytest.fixture
    def law(self, golden):
        return DoublePoisson(golden["mu"], golden["gamma"])

    def test_of_law(self, golden, law, assert_within):
        at = {"mu": golden["mu"], "gamma": golden["gamma"]}
        assert_within(law.log_normalizer(), golden["log_c"], 1e-8, floor=1.0, **at)
        assert_within(law.mean, golden["mean"], 1e-7, **at)
        assert_within(law.variance, golden["var"], 1e-7, **at)
        assert_within(law.entropy(), golden["entropy"], 1e-7, **at)
        assert torch.equal(law.mode, golden["mode"])
        assert torch.equal(law.icdf(torch.tensor(0.95, dtype=torch.float64)), golden["q0.95"])

    @pytest.mark.parametrize("place", ["1", "2", "3"])
    def test_at_counts(self, golden, law, assert_within, place):
        y = golden[f"y{place}"]
        at = {"mu": golden["mu"], "gamma": golden["gamma"], "y": y}
        assert_within(law.log_prob(y), golden[f"log_pmf{place}"], 1e-8, floor=1.0, **at)
        assert_within(law.cdf(y), golden[f"cdf{place}"], 1e-7, floor=1e-12, **at)
        assert_within(law.survival(y), golden[f"sf{place}"], 1e-7, floor=1e-12, **at)
        assert_within(law.crps(y), golden[f"crps{place}"], 1e-6, **at)

    def test_derivatives(self, golden, monkeypatch):
        """Of first and second order: those of the host, and none spoilt by what other cases make of a row."""

        def derivatives():
            logs = [golden[k].log().requires_grad_() for k in ("mu", "gamma")]
            value = DoublePoisson(*(x.exp() for x in logs)).log_prob(golden["y1"]).sum()
            first = torch.autograd.grad(value, logs, create_graph=True)
            return *(f.detach() for f in first), *torch.autograd.grad(first[0].sum() + first[1].sum(), logs)

        away = derivatives()
        monkeypatch.undo()
        scale = (golden["gamma"] * (golden["y1"] + golden["mu"])).clamp(min=1.0)
        for got, expected in zip(away, derivatives(), strict=True):
            assert ((got - expected).abs() <= 1e-7 * expected.abs() + 1e-9 * scale).all()

    def test_negative_binomial(self, monkeypatch):
        law = NegativeBinomial(torch.logspace(-3, 6, 40, dtype=torch.float64), torch.tensor([[0.01], [0.5], [3.0]]))
        y = law.icdf(torch.tensor(0.7))
        away = [getattr(law, m)(y) for m in ("cdf", "survival", "crps")] + [law.entropy()]
        monkeypatch.undo()
        here = [getattr(law, m)(y) for m in ("cdf", "survival", "crps")] + [law.entropy()]
        for got, expected in zip(away, here, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-7, atol=1e-12)
