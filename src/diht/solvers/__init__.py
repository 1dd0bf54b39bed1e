"""The methods, one file each; `diht.solvers.loop` drives them."""

from diht.solvers.auto import Auto
from diht.solvers.base import Point, Solver, Start
from diht.solvers.branch import BranchAndBound
from diht.solvers.diht import DIHT
from diht.solvers.htp import HTP
from diht.solvers.iht import IHT
from diht.solvers.relaxed import Relaxed
from diht.solvers.sdiht import SDIHT
from diht.solvers.svrght import SVRGHT

__all__ = ["DIHT", "HTP", "IHT", "SDIHT", "SVRGHT", "Auto", "BranchAndBound", "Point", "Relaxed", "Solver", "Start"]
