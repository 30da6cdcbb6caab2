//! torchvision's classifiers (version 0.26): the families `resnet`, `convnext` and `swin`, and those that are sequences of a few
//! kinds of layers, `vgg`, `mobilenetv2`, `mobilenetv3`, `mnasnet`, `regnet`, `efficientnet`, `densenet` and
//! `inception`.

pub mod convnext;
pub mod densenet;
pub mod efficientnet;
pub mod inception;
mod layers;
pub mod mnasnet;
pub mod mobilenetv2;
pub mod mobilenetv3;
mod network;
pub mod regnet;
pub mod resnet;
mod shifted_window;
mod stochastic_depth;
pub mod swin;
pub mod vgg;
