"""Diffusion models as their libraries' training scripts have them, for `plimsoll trace`.

Sizes are those of the published `config.json` that `data/hulls.toml` names for each; weights are not needed, and none are loaded.
"""

import torch
from diffusers import FluxTransformer2DModel, SD3Transformer2DModel, UNet2DConditionModel
from diffusers.training_utils import cast_training_params
from peft import LoraConfig

ATTENTION = ["to_k", "to_q", "to_v", "to_out.0"]


def sd_15_unet():
    return UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8)


def sdxl_unet():
    return UNet2DConditionModel(
        sample_size=128,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(320, 640, 1280),
        transformer_layers_per_block=(1, 2, 10),
        attention_head_dim=(5, 10, 20),
        cross_attention_dim=2048,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=256,
        projection_class_embeddings_input_dim=2816,
    )


def adapted(model, rank=4, targets=ATTENTION, dtype=torch.bfloat16):
    """`train_text_to_image_lora.py` and its siblings: the weights frozen in 16 bits, adapters in float32 beside attention's layers."""
    model.requires_grad_(False)
    model.to(dtype=dtype)
    model.add_adapter(LoraConfig(r=rank, lora_alpha=rank, init_lora_weights="gaussian", target_modules=targets))
    cast_training_params(model, dtype=torch.float32)
    return model


def sd3_transformer():
    return SD3Transformer2DModel(
        sample_size=128,
        patch_size=2,
        in_channels=16,
        num_layers=24,
        attention_head_dim=64,
        num_attention_heads=24,
        joint_attention_dim=4096,
        caption_projection_dim=1536,
        pooled_projection_dim=2048,
        out_channels=16,
        pos_embed_max_size=192,
    )


def flux_transformer():
    return FluxTransformer2DModel(
        patch_size=1,
        in_channels=64,
        num_layers=19,
        num_single_layers=38,
        attention_head_dim=128,
        num_attention_heads=24,
        joint_attention_dim=4096,
        pooled_projection_dim=768,
        guidance_embeds=True,
    )


# What `train_dreambooth_lora_sd3.py` and `train_dreambooth_lora_flux.py` adapt where nothing is said.
JOINT = ["attn.add_k_proj", "attn.add_q_proj", "attn.add_v_proj", "attn.to_add_out",
         "attn.to_k", "attn.to_out.0", "attn.to_q", "attn.to_v"]
