//! What changed in bitsandbytes.

use super::{Rule, Version, bitsandbytes};

/// What a four-bit product keeps.
pub const INPUT_LET_GO: Rule = bitsandbytes(
    Version::patch(0, 43, 2),
    "a four-bit product keeps nothing of its input; before, wherever a gradient was asked for, its node held the input, a \
     frozen weight or not, where no checkpoint saw it, until the graph went",
    "bitsandbytes/autograd/_functions.py of the wheels 0.43.1 (MatMul4Bit: ctx.tensors = (A, B)) and 0.43.2 ((None, B)); \
     commit 9e753741 (pull request 1270)",
);

/// The scales of eight-bit optimizers.
pub const SMALL_BLOCKS: Rule = bitsandbytes(
    Version::new(0, 44),
    "an eight-bit moment has a scale for every 256 numbers; before, for every 2048",
    "bitsandbytes/optim/optimizer.py of 0.43.3 and 0.44.0 (commit aa57bd89, pull request 1365)",
);

/// The eight-bit product. What it did before is not followed.
pub const EIGHT_BIT_ROWS: Rule = bitsandbytes(
    Version::new(0, 45),
    "an eight-bit weight stays in rows, and a product keeps its input; before, the weight was turned into a layout of the \
     card's, and a product kept its input's int8 copy too, turned, and without a gradient the input all the same",
    "bitsandbytes/autograd/_functions.py of 0.44.1 (MatMul8bitLt: CxB, ctx.tensors = (CAt, subA, A) or [None, None, A]) and \
     0.45.0 (commit 81e6345d, pull request 1401)",
);

/// The map of scales that are quantized.
pub const OWN_MAPS: Rule = bitsandbytes(
    Version::new(0, 46),
    "every weight with double quantization has a copy of the map of eight-bit numbers; before, all had one",
    "bitsandbytes/functional.py of 0.45.5 and 0.46.0 (quantize_blockwise: code.to(A.device, copy=True)); commit 9f858294",
);

/// What a four-bit linear computes in.
pub const COMPUTE_AS_SAID: Rule = bitsandbytes(
    Version::new(0, 47),
    "a four-bit linear computes in bnb_4bit_compute_dtype where that is given; before, a first input in float32 or bfloat16 \
     made it compute in that dtype ever after",
    "bitsandbytes/nn/modules.py of 0.46.1 and 0.47.0 (Linear4bit: compute_type_is_set)",
);

/// How a four-bit product is made.
pub const FUSED_FOUR_BIT: Rule = bitsandbytes(
    Version::new(0, 50),
    "one operator makes a four-bit product: a kernel of its own for a few rows, else from the weight unpacked in the input's \
     dtype; before, one row without a gradient had a kernel, and anything else the weight unpacked in the dtype it was \
     quantized from, then cast, and a bias was cast to the dtype of the layer's input for good and then to the computed one",
    "bitsandbytes/autograd/_functions.py and nn/modules.py of 0.49.2 and 0.50.0 (commit 5453368b, pull request 1949)",
);
