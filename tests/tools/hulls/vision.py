"""Vision models as people fine-tune them, for `plimsoll trace`. Sizes are those of the published `config.json`."""

import numpy
from transformers import DetrConfig, DetrForObjectDetection, SamConfig, SamModel
from transformers.loss import loss_for_object_detection as detection


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


class AllAtOnce(detection.ImageLoss):
    """DETR's loss where every image has as many boxes, so that those of a batch are one target: the original picks each image's by
    itself, a launch an image, and no recording of one batch would hold for another."""

    def __init__(self, config, boxes):
        matcher = detection.HungarianMatcher(config.class_cost, config.bbox_cost, config.giou_cost)
        super().__init__(matcher, config.num_labels, config.eos_coefficient, ["labels", "boxes", "cardinality"])
        self.boxes = boxes

    def _get_source_permutation_idx(self, indices):
        (source, target), = indices
        return target // self.boxes, source


def detr_loss(model, pixels, mask, labels, boxes):
    """`ForObjectDetectionLoss`, matched on the host: which query a box goes to bears on no size."""
    count = labels.shape[1]
    out = model(pixel_values=pixels, pixel_mask=mask)
    every = numpy.arange(labels.numel())
    detection.linear_sum_assignment = lambda cost: (every % count, every)
    criterion = AllAtOnce(model.config, count).to(pixels.device)
    said = criterion({"logits": out.logits, "pred_boxes": out.pred_boxes},
                     [{"class_labels": labels.flatten(), "boxes": boxes.flatten(0, 1)}])
    weights = {"loss_ce": 1, "loss_bbox": model.config.bbox_loss_coefficient, "loss_giou": model.config.giou_loss_coefficient}
    return sum(said[name] * weight for name, weight in weights.items())
