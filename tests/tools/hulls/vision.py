"""Vision models as people fine-tune them, for `plimsoll trace`. Sizes are those of the published `config.json`."""

from transformers import SamConfig, SamModel


def sam_base_decoder():
    """SAM's mask decoder trained, image encoder and prompt encoder frozen, as Hugging Face's notebook on fine-tuning SAM has it."""
    model = SamModel(SamConfig())
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(("vision_encoder", "prompt_encoder")))
    return model
