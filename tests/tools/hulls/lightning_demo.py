"""Lightning's demonstration transformer at the size of its FSDP guide, for `plimsoll trace`:

    plimsoll trace tests/tools/hulls/lightning_demo.py:make --input 'x=int64[B,S]' --input 'y=int64[B,S]' --axis S=35 \\
        --loss 'F.nll_loss(model(x, y), y.view(-1))' --precision fp32 -o tests/corpus/hulls/lightning-demo-fp32.hull

The loss is that of `LightningTransformer.training_step`, in the same file of pytorch-lightning 2.6.
"""

from pytorch_lightning.demos import Transformer


def make():
    """1,008,763,390 parameters, `docs/source-pytorch/advanced/model_parallel/fsdp.rst`."""
    return Transformer(vocab_size=33278, nlayers=32, nhid=4096, ninp=1024, nhead=64)
