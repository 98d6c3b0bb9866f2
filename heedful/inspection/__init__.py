"""Every intermediate result of a translation, and every hypothesis of a search."""

from heedful.inspection.beam_tree import BeamNode, BeamTree, beam_tree
from heedful.inspection.trace import Intervention, Trace, trace

__all__ = ["BeamNode", "BeamTree", "Intervention", "Trace", "beam_tree", "trace"]
