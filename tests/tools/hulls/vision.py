"""Vision models as people fine-tune them, for `plimsoll trace`. Sizes are those of the published `config.json`."""

from transformers import DetrConfig, DetrForObjectDetection, SamConfig, SamModel


def sam_base_decoder():
    """SAM's mask decoder trained, image encoder and prompt encoder frozen, as Hugging Face's notebook on fine-tuning SAM has it."""
    model = SamModel(SamConfig())
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(("vision_encoder", "prompt_encoder")))
    return model


def detr_resnet_50():
    """`facebook/detr-resnet-50`: timm's ResNet with frozen batch norm. Its stem and first stage are not trained (`Backbone` in
    facebookresearch/detr), which transformers 5.17 no longer sees to by itself."""
    model = DetrForObjectDetection(DetrConfig(use_timm_backbone=True, backbone="resnet50", use_pretrained_backbone=False, num_labels=91))
    for name, parameter in model.model.backbone.named_parameters():
        parameter.requires_grad_(any(stage in name for stage in ("layer2", "layer3", "layer4")))
    return model
