//! Compares resource quantities: `1Gi` and `1073741824` are equal.
//!
//! Quantities reach the rules in canonical form; `objects::decode` brings them into it.

/// Billionths of the unit, the smallest step of a quantity; `None` if the text is not a quantity.
pub(super) fn nanos(text: &str) -> Option<i128> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 9 {
        return None;
    }
    let negative = whole.starts_with('-');
    let whole: i128 = match whole {
        "" | "-" | "+" if fraction.is_empty() => return None,
        "" | "-" | "+" => 0,
        whole => whole.parse().ok()?,
    };
    let fraction: i128 = match fraction {
        "" => 0,
        digits => format!("{digits:0<9}").parse().ok()?,
    };
    let nanos = whole.checked_mul(1_000_000_000)?;
    let nanos = if negative {
        nanos - fraction
    } else {
        nanos + fraction
    };
    match suffix {
        "" => Some(nanos),
        "n" => Some(nanos / 1_000_000_000),
        "u" => Some(nanos / 1_000_000),
        "m" => Some(nanos / 1_000),
        "k" => nanos.checked_mul(1_000),
        "M" => nanos.checked_mul(1_000_000),
        "G" => nanos.checked_mul(1_000_000_000),
        "T" => nanos.checked_mul(1_000_000_000_000),
        "P" => nanos.checked_mul(1_000_000_000_000_000),
        "E" => nanos.checked_mul(1_000_000_000_000_000_000),
        "Ki" => nanos.checked_mul(1 << 10),
        "Mi" => nanos.checked_mul(1 << 20),
        "Gi" => nanos.checked_mul(1 << 30),
        "Ti" => nanos.checked_mul(1 << 40),
        "Pi" => nanos.checked_mul(1 << 50),
        "Ei" => nanos.checked_mul(1 << 60),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = 10_i128.checked_pow(power.unsigned_abs())?;
            if power < 0 {
                Some(nanos / factor)
            } else {
                nanos.checked_mul(factor)
            }
        }
    }
}

/// An amount in canonical form: thousandths where it needs them, else powers of 1024 or 1000.
pub(super) fn text(nanos: i128, decimal: bool) -> String {
    let (whole, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    if rest != 0 {
        return match nanos % 1_000_000 {
            0 => format!("{}m", nanos / 1_000_000),
            _ => format!("{nanos}n"),
        };
    }
    let (step, suffixes) = match decimal {
        true => (1000, ["", "k", "M", "G", "T", "P", "E"]),
        false => (1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]),
    };
    let mut amount = whole;
    let mut power = 0;
    while amount != 0 && amount % step == 0 && power + 1 < suffixes.len() {
        amount /= step;
        power += 1;
    }
    format!("{amount}{}", suffixes[power])
}

/// Whether the amount is a whole number of units.
pub(super) fn is_whole(text: &str) -> bool {
    nanos(text).is_some_and(|nanos| nanos % 1_000_000_000 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_compared_by_value() {
        for (text, want) in [
            ("1", Some(1_000_000_000)),
            ("100m", Some(100_000_000)),
            ("1Gi", Some((1_i128 << 30) * 1_000_000_000)),
            ("1e3", Some(1_000_000_000_000)),
            ("1k", Some(1_000_000_000_000)),
            ("0.5", Some(500_000_000)),
            ("-1.5", Some(-1_500_000_000)),
            ("1n", Some(1)),
            ("", None),
            ("x", None),
            (".", None),
            ("1.0000000001", None),
            ("9999999999999999999999999999999E", None),
        ] {
            assert_eq!(nanos(text), want, "{text}");
        }
        for (amount, decimal, want) in [
            ("1500m", true, "1500m"),
            ("2000", true, "2k"),
            ("2048", false, "2Ki"),
            ("0", true, "0"),
        ] {
            assert_eq!(
                nanos(amount).map(|n| super::text(n, decimal)).as_deref(),
                Some(want)
            );
        }
        assert!(is_whole("2k") && !is_whole("1500m"));
    }
}
