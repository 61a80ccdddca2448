//! From when until when a certificate is valid, read from its DER form.

use jiff::Timestamp;
use jiff::civil::DateTime;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

impl Validity {
    /// None for bytes that are no certificate.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let mut outer = certificate;
        let mut whole = expect(&mut outer, SEQUENCE)?;
        let mut fields = expect(&mut whole, SEQUENCE)?;
        if fields.first() == Some(&VERSION) {
            next(&mut fields)?;
        }
        // Serial number, algorithm, issuer.
        for _ in 0..3 {
            next(&mut fields)?;
        }
        let mut times = expect(&mut fields, SEQUENCE)?;
        Some(Self {
            start: time(&mut times)?,
            end: time(&mut times)?,
        })
    }

    /// Not yet valid, expired, or in the last tenth of its life, when its renewal must have failed.
    pub(super) fn check(&self, now: Timestamp) -> Result<(), String> {
        if now < self.start {
            return Err(format!(
                "the certificate is not valid before {}",
                self.start
            ));
        }
        if now >= self.end {
            return Err(format!("the certificate expired at {}", self.end));
        }
        let life = self.end.as_second() - self.start.as_second();
        match self.end.as_second() - now.as_second() < life / 10 {
            true => Err(format!("the certificate expires soon, at {}", self.end)),
            false => Ok(()),
        }
    }
}

fn time(input: &mut &[u8]) -> Option<Timestamp> {
    let (tag, text) = next(input)?;
    let text = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let text = match tag {
        // Two digits of the year: 50 to 99 are in the last century.
        UTC_TIME => match text.get(..2)?.parse::<u8>().ok()? {
            50.. => format!("19{text}"),
            _ => format!("20{text}"),
        },
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let date = DateTime::strptime("%Y%m%d%H%M%S", &text).ok()?;
    Some(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

fn expect<'a>(input: &mut &'a [u8], want: u8) -> Option<&'a [u8]> {
    let (tag, value) = next(input)?;
    (tag == want).then_some(value)
}

/// The tag and the content of the next value.
fn next<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        ..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => (
            usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])),
            rest.get(2..)?,
        ),
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some((tag, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::certificates::authority::KeyedCertificate;

    #[test]
    fn the_times_of_a_certificate() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for end in [1_900_000_000, 4_000_000_000] {
            let made = KeyedCertificate::authority(at(1_800_000_000), at(end)).unwrap();
            let key = made.certified_key().unwrap();
            let validity = Validity::of(&key.cert[0]).unwrap();
            assert_eq!(validity.end, at(end));
            assert_eq!(validity.start, at(1_800_000_000 - 3600));
            assert!(validity.check(at(1_800_000_000)).is_ok());
            for (now, want) in [
                (0, "not valid before"),
                (end, "expired at"),
                (end - 60, "expires soon"),
            ] {
                let found = validity.check(at(now)).unwrap_err();
                assert!(found.contains(want), "{found}");
            }
            for length in 0..key.cert[0].len() {
                assert!(length > 200 || Validity::of(&key.cert[0][..length]).is_none());
            }
        }
    }
}
