"""Shapes in signatures: `Float[Tensor, "B T D"]`. The tests check them through jaxtyping; elsewhere they are words.

The letters mean the same in every file: B batch, S source length, T target length, Q and K query and key lengths
inside attention, H heads, Dk key_dim, Dh head_dim, D d_model, F d_ff, V vocabulary, L layers, N beam, R rows of a
decoder state (B times N). A letter that is not listed belongs to its function alone.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:  # jaxtyping is a development tool: without it the annotations are only read by people

        class _Annotation:
            def __class_getitem__(cls, item):
                return item[0]

        Bool = Float = Int = _Annotation

__all__ = ["Bool", "Float", "Int"]
