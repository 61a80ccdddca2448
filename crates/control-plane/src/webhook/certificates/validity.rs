//! Whether a certificate is good enough to be ready with.

use jiff::Timestamp;

use crate::serve::Validity;

/// Not yet valid, expired, or in the last tenth of its life, when its renewal must have failed.
pub(super) fn check(certificate: &Validity, now: Timestamp) -> Result<(), String> {
    let Validity { start, end } = certificate;
    if now < *start {
        return Err(format!("the certificate is not valid before {start}"));
    }
    if now >= *end {
        return Err(format!("the certificate expired at {end}"));
    }
    let life = end.as_second() - start.as_second();
    match end.as_second() - now.as_second() < life / 10 {
        true => Err(format!("the certificate expires soon, at {end}")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::certificates::authority::KeyedCertificate;

    #[test]
    fn a_certificate_is_good_until_the_last_tenth_of_its_life() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for end in [1_900_000_000, 4_000_000_000] {
            let made = KeyedCertificate::authority(at(1_800_000_000), at(end)).unwrap();
            let key = made.certified_key().unwrap();
            let validity = Validity::of(&key.cert[0]).unwrap();
            assert_eq!(validity.end, at(end));
            assert_eq!(validity.start, at(1_800_000_000 - 3600));
            assert!(check(&validity, at(1_800_000_000)).is_ok());
            for (now, want) in [
                (0, "not valid before"),
                (end, "expired at"),
                (end - 60, "expires soon"),
            ] {
                let found = check(&validity, at(now)).unwrap_err();
                assert!(found.contains(want), "{found}");
            }
        }
    }
}
