"""The methods, one file each; `diht.loop` drives them."""

from diht.solvers.base import Point, Solver, Start
from diht.solvers.diht import DIHT
from diht.solvers.htp import HTP
from diht.solvers.iht import IHT
from diht.solvers.polished import Polished
from diht.solvers.sdiht import SDIHT
from diht.solvers.svrght import SVRGHT

__all__ = ["DIHT", "HTP", "IHT", "SDIHT", "SVRGHT", "Point", "Polished", "Solver", "Start"]
