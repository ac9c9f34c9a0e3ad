"""The paper's numbers come with the package."""

from ddpn.experiments.published import reference


def test_references_hold_both_kinds_of_every_method():
    kinds = {(kind, method) for kind, method, _ in reference("accuracy_calibration", "length_of_stay")}
    assert len(kinds) == 20


def test_ood_detection_is_there():
    found = reference("ood_detection")
    assert found["", "beta_ddpn_0.5", "auroc"] > found["", "poisson", "auroc"]
