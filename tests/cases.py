"""The cases that the property tests of every module run over."""

from diht.losses import Hinge, Huber, Logistic, Loss, SmoothedHinge, Squared, SquaredHinge

LOSSES: list[Loss] = [Squared(), SmoothedHinge(), Hinge(), Logistic(), SquaredHinge(), Huber()]
