//! Values that are a count or a percentage.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

#[derive(Clone, Copy)]
pub(crate) enum Rounding {
    Up,
    Down,
}

/// The count, or the percentage of `whole`; the server has validated the value.
pub(crate) fn scaled_value(value: Option<&IntOrString>, whole: i32, rounding: Rounding) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(count)) => (*count).max(0),
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let hundredths = percent.clamp(0, 100_000) * i64::from(whole.max(0));
            let share = match rounding {
                Rounding::Up => (hundredths + 99) / 100,
                Rounding::Down => hundredths / 100,
            };
            i32::try_from(share).unwrap_or(i32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_up_or_down() {
        let percent = |text: &str| Some(IntOrString::String(text.into()));
        for (case, value, up, down) in [
            ("nothing", None, 0, 0),
            ("a count", Some(IntOrString::Int(3)), 3, 3),
            ("a negative count", Some(IntOrString::Int(-3)), 0, 0),
            ("a percentage", percent("25%"), 3, 2),
            ("all", percent("100%"), 10, 10),
            ("an invalid value", percent("many"), 0, 0),
        ] {
            let value = value.as_ref();
            assert_eq!(scaled_value(value, 10, Rounding::Up), up, "{case}");
            assert_eq!(scaled_value(value, 10, Rounding::Down), down, "{case}");
        }
    }
}
