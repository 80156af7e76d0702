//! Settings of the kernel in a budget's words: `thp=always+kernel=6.12`.

use hksim_explore::flags::table::{FLAGS, Subject, find};
use hksim_explore::flags::{BaseKernel, RunConfig};
use hksim_memory_sim::{Advise, MadvFree, Setting, ThpPrctl};
use hksim_policy::Policy;

use crate::error::BudgetError;

/// The setting with these words: flags of the kernel and edits of the recording as on the command line, without dashes,
/// joined by `+`; an empty text is the kernel as it comes.
///
/// # Errors
/// A flag is unknown or not about the kernel, or a value is invalid.
pub fn of_words(design: &str, words: &str) -> Result<Setting, BudgetError> {
    let wrong = |why: String| BudgetError::Setting { design: design.to_string(), words: words.to_string(), why };
    let mut config = RunConfig::of(Policy::DEFAULT);
    let (mut advise, mut thp_prctl, mut madv_free) = ("none", "recorded", "recorded");
    for word in words.split('+').filter(|word| !word.is_empty()) {
        let (name, value) = word.split_once('=').ok_or_else(|| wrong(format!("`{word}`: write FLAG=VALUE")))?;
        match name {
            "advise" => advise = value,
            "thp-prctl" => thp_prctl = value,
            "madv-free" => madv_free = value,
            _ => {
                let flag = find(name).filter(|flag| flag.subject == Subject::Kernel);
                let flag = flag.ok_or_else(|| wrong(format!("{name} is not a flag of the kernel; {}", known())))?;
                flag.set(&mut config, value).map_err(|why| wrong(format!("{name} {why}")))?;
            }
        }
    }
    config.check().map_err(|why| wrong(why.to_string()))?;
    Ok(Setting {
        kernel: config.kernel(BaseKernel::AsItComes).map_err(|why| wrong(why.to_string()))?,
        advise: Advise::parse(advise).map_err(|why| wrong(format!("advise: {why}")))?,
        thp_prctl: ThpPrctl::parse(thp_prctl).map_err(|why| wrong(format!("thp-prctl: {why}")))?,
        madv_free: MadvFree::parse(madv_free).map_err(|why| wrong(format!("madv-free: {why}")))?,
    })
}

fn known() -> String {
    let flags = FLAGS.iter().filter(|flag| flag.subject == Subject::Kernel).map(|flag| flag.name);
    format!("flags are {}", flags.chain(["advise", "thp-prctl"]).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hksim_linux_mm::ThpMode;

    #[test]
    fn words_are_flags_of_the_kernel() {
        let setting = of_words("a", "thp=always+advise=heap").expect("a setting");
        assert_eq!((setting.kernel.thp.global, setting.advise), (ThpMode::Always, Advise::Heap));
        assert!(of_words("a", "").is_ok());
        for (words, part) in [
            ("thp", "`thp`: write FLAG=VALUE"),
            ("slab=16K", "slab is not a flag of the kernel; flags are "),
            ("thp=maybe", "thp "),
            ("advise=x", "advise: "),
        ] {
            let why = of_words("a", words).expect_err(words).to_string();
            assert!(why.starts_with(&format!("design.a: setting = \"{words}\": {part}")), "{why}");
        }
    }
}
