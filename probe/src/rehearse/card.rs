//! The card that is to be rehearsed on: the catalog's, with what was said otherwise.

use plimsoll_core::catalog::{Gpu, Vendor, search};
use plimsoll_core::scenario::no_such_gpu;
use plimsoll_core::{Bytes, Error, device};
use plimsoll_hollow::Card;

use super::{Addresses, Args};

/// The most cards that are rehearsed at once.
pub const MOST_CARDS: u8 = 16;

/// Drivers hand memory out in whole pages.
const PAGE: u64 = 64 << 10;

/// The card that the arguments describe, how many of it, and how deep a run should sit on each at most.
pub fn card(args: &Args) -> Result<(Card, u8, Bytes), Error> {
    let (named, gpu) = named(&args.gpu)?;
    let count = args.cards.or_else(|| u8::try_from(named).ok().filter(|count| *count <= MOST_CARDS));
    let count = count.ok_or_else(|| {
        let hint = format!("say with --cards how many, at most {MOST_CARDS}");
        Error::new("gpu", format!("{named} cards are more than are rehearsed at once"), hint)
    })?;
    let (Vendor::Nvidia, Some((major, minor))) = (gpu.vendor, gpu.compute_capability) else {
        let problem = format!("{} is no CUDA card", gpu.name);
        return Err(Error::new("gpu", problem, "take one of NVIDIA's: `plimsoll gpus` lists them"));
    };
    let board = gpu.memory;
    let memory = args.memory.unwrap_or_else(|| board.saturating_sub(device::driver_reserve(gpu).bytes));
    let memory = Bytes::new(memory.get() / PAGE * PAGE);
    let sms = args.sms.map(u64::from).or(gpu.multiprocessors).unwrap_or_else(|| device::multiprocessors(gpu));
    let line = device::limits(gpu, args.memory, None).load_line;
    let card = Card {
        name: args.name.clone().unwrap_or_else(|| format!("NVIDIA {}", gpu.name)),
        capability: args.compute_capability.unwrap_or((major.into(), minor.into())),
        multiprocessors: u32::try_from(sms).unwrap_or(u32::MAX),
        memory: memory.get(),
        board: board.max(memory).get(),
        context: args.context.unwrap_or_else(|| device::context(gpu).bytes).get(),
        falling: args.addresses == Addresses::Falling,
    };
    Ok((card, count, line))
}

/// A card of the catalog as people call it, and how many of it: "RTX 5070 Ti", "2x4090".
fn named(text: &str) -> Result<(u64, &'static Gpu), Error> {
    search::gpu_called(text).ok_or_else(|| {
        let Error { problem, hint, .. } = no_such_gpu(search::count(text).1);
        let hint = format!("{hint}; or take one of its kind and say --memory, --sms and --compute-capability");
        Error::new("gpu", problem, hint)
    })
}

/// Longest name of a card, in bytes: NVML's own is 96 with the zero behind it (`NVML_DEVICE_NAME_V2_BUFFER_SIZE`).
const NAME: usize = 95;

/// A name that a driver could give.
pub fn parse_name(text: &str) -> Result<String, String> {
    let good = !text.is_empty() && text.len() <= NAME && !text.chars().any(char::is_control);
    good.then(|| text.to_owned()).ok_or_else(|| format!("a name of 1 to {NAME} bytes"))
}

/// `8.9`.
pub fn parse_capability(text: &str) -> Result<(u32, u32), String> {
    text.split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .filter(|&(major, minor)| (5..=20).contains(&major) && minor < 10)
        .ok_or_else(|| "a compute capability like 8.9".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_found_as_people_call_it() {
        let id = |text| named(text).map(|(count, gpu)| (count, gpu.id)).unwrap();
        assert_eq!(id("rtx-5070-ti"), (1, "rtx-5070-ti"));
        assert_eq!(id("RTX 5070 Ti"), (1, "rtx-5070-ti"));
        assert_eq!(id("5070 ti"), (1, "rtx-5070-ti"));
        assert_eq!(id("NVIDIA GeForce RTX 5070 Ti Laptop GPU"), (1, "rtx-5070-ti-laptop"));
        assert_eq!(id("2x4090"), (2, "rtx-4090"));
        let error = named("rtx 507").unwrap_err();
        assert!(error.hint.contains("rtx-5070-ti-laptop"), "{error}");
        assert!(named("abacus").unwrap_err().hint.contains("--sms"));
    }

    #[test]
    fn a_capability_is_two_numbers() {
        assert_eq!(parse_capability("8.9"), Ok((8, 9)));
        assert_eq!(parse_capability("12.0"), Ok((12, 0)));
        assert!(
            parse_capability("89").is_err() && parse_capability("8.x").is_err() && parse_capability("1.0").is_err()
        );
    }
}
