//! From a row to its forward: the one place that knows which file an architecture is written in.

use plimsoll_catalog::families::Architecture;
use plimsoll_ground::{Error, Result};
use plimsoll_torch::nn::Scope;

use super::{
    Config, Model, Plan, bart, bert, bloom, clip, convnext, deberta, deepseek, dinov2, distilbert, electra, falcon,
    gat, gemma, gemma2, gemma4, glm, glm4_moe, gpt_neo, gpt_neox, gpt_oss, gpt2, gptj, llama, llama4, mixtral, mlp,
    modernbert, nanogpt, nbeats, olmo, olmo2, olmoe, opt, phi, phi3, qwen_moe, qwen_vl, qwen3_5, qwen3_next, resnet,
    roberta, smollm3, stablelm, starcoder2, swin, t5, torchvision, vit, whisper,
};

/// Builds the model of a row.
///
/// # Errors
/// Sizes that are missing, too large or contradict one another.
pub fn build(architecture: Architecture, scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let build = match architecture {
        // It has no forward: its recording is played.
        Architecture::Hull => {
            return Err(Error::new("model.hull", "a hull is played, not built", "report it"));
        }
        Architecture::Bart => bart::build,
        Architecture::Bert => bert::build,
        Architecture::Bloom => bloom::build,
        Architecture::Clip => clip::build,
        Architecture::Convnext => convnext::build,
        Architecture::DebertaV2 => deberta::build,
        Architecture::Deepseek => deepseek::build_v3,
        Architecture::DeepseekV2 => deepseek::build_v2,
        Architecture::Glm4MoeLite => deepseek::build_lite,
        Architecture::Dinov2 => dinov2::build,
        Architecture::Distilbert => distilbert::build,
        Architecture::Electra => electra::build,
        Architecture::Falcon => falcon::build,
        Architecture::Gat => gat::build,
        Architecture::Gemma => gemma::build,
        Architecture::Gemma2 => gemma2::build,
        Architecture::Gemma4 => gemma4::build,
        Architecture::Glm => glm::build,
        Architecture::Glm4Moe => glm4_moe::build,
        Architecture::Gpt2 => gpt2::build,
        Architecture::GptNeo => gpt_neo::build,
        Architecture::GptNeox => gpt_neox::build,
        Architecture::GptOss => gpt_oss::build,
        Architecture::Gptj => gptj::build,
        Architecture::Llama => llama::build,
        Architecture::Llama4 => llama4::build,
        Architecture::Mixtral => mixtral::build,
        Architecture::Mlp => mlp::build,
        Architecture::ModernBert => modernbert::build,
        Architecture::NanoGpt => nanogpt::build,
        Architecture::Nbeats => nbeats::build,
        Architecture::Olmo => olmo::build,
        Architecture::Olmo2 => olmo2::build,
        Architecture::Olmoe => olmoe::build,
        Architecture::Opt => opt::build,
        Architecture::Phi => phi::build,
        Architecture::Phi3 => phi3::build,
        Architecture::Qwen35 => qwen3_5::build,
        Architecture::Qwen3Next => qwen3_next::build,
        Architecture::QwenMoe => qwen_moe::build,
        Architecture::QwenVl => qwen_vl::build,
        Architecture::Resnet => resnet::build,
        Architecture::Roberta => roberta::build,
        Architecture::SmolLm3 => smollm3::build,
        Architecture::StableLm => stablelm::build,
        Architecture::Starcoder2 => starcoder2::build,
        Architecture::Swin => swin::build,
        Architecture::T5 => t5::build,
        Architecture::TorchvisionConvnext => torchvision::convnext::build,
        Architecture::TorchvisionDensenet => torchvision::densenet::build,
        Architecture::TorchvisionEfficientnet => torchvision::efficientnet::build,
        Architecture::TorchvisionInception => torchvision::inception::build,
        Architecture::TorchvisionMnasnet => torchvision::mnasnet::build,
        Architecture::TorchvisionMobilenetV2 => torchvision::mobilenetv2::build,
        Architecture::TorchvisionMobilenetV3 => torchvision::mobilenetv3::build,
        Architecture::TorchvisionRegnet => torchvision::regnet::build,
        Architecture::TorchvisionResnet => torchvision::resnet::build,
        Architecture::TorchvisionSwin => torchvision::swin::build,
        Architecture::TorchvisionVgg => torchvision::vgg::build,
        Architecture::Vit => vit::build,
        Architecture::Whisper => whisper::build,
    };
    build(scope, config, plan)
}
