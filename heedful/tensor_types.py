"""Shapes in signatures: `Float[Tensor, "B T D"]`. Tests check them with jaxtyping; elsewhere they are documentation.

The letters mean the same in every file: B batch, S source length, T target length, Q and K query and key lengths
inside attention, H heads, Dk key_dim, Dh head_dim, D d_model, F d_ff, V vocabulary, L layers, N beam, R rows of a
decoder state (B times N). Other letters are local to a function.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:  # jaxtyping is a development dependency

        class _Annotation:
            def __class_getitem__(cls, item):
                return item[0]

        Bool = Float = Int = _Annotation

__all__ = ["Bool", "Float", "Int"]
