//! Reads the parts of certificates that no library offers: values in DER.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
/// UTF8String, PrintableString and IA5String.
pub(super) const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The tag of a certificate's version; absent in version 1.
const VERSION: u8 = 0xa0;

pub(super) fn expect<'a>(input: &mut &'a [u8], want: u8) -> Option<&'a [u8]> {
    let (tag, value) = next(input)?;
    (tag == want).then_some(value)
}

/// The tag and the content of the next value. None for an invalid one, and for a length above 65535.
pub(super) fn next<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (tag, length, rest) = match **input {
        [tag, length @ ..=0x7f, ref rest @ ..] => (tag, usize::from(length), rest),
        [tag, 0x81, length, ref rest @ ..] => (tag, usize::from(length), rest),
        [tag, 0x82, high, low, ref rest @ ..] => {
            (tag, usize::from(u16::from_be_bytes([high, low])), rest)
        }
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some((tag, value))
}

/// From when until when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
}

impl Validity {
    /// None for bytes that are no certificate.
    pub(crate) fn of(mut certificate: &[u8]) -> Option<Self> {
        let mut outer = expect(&mut certificate, SEQUENCE)?;
        let mut fields = expect(&mut outer, SEQUENCE)?;
        if fields.first() == Some(&VERSION) {
            next(&mut fields)?;
        }
        // Serial number, signature algorithm and issuer.
        for _ in 0..3 {
            next(&mut fields)?;
        }
        let mut times = expect(&mut fields, SEQUENCE)?;
        Some(Self {
            start: time(&mut times)?,
            end: time(&mut times)?,
        })
    }
}

fn time(input: &mut &[u8]) -> Option<Timestamp> {
    let (tag, time) = next(input)?;
    let text = str::from_utf8(time).ok()?;
    let text = match tag {
        // Years below 50 are of this century.
        UTC_TIME if text.get(..2)? < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", text).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn the_times_of_a_certificate_are_read() {
        for (year, want) in [
            (2031, "2031-02-03T00:00:00Z"),
            // After 2049 the form of the time is another one.
            (2050, "2050-02-03T00:00:00Z"),
            (4096, "4096-02-03T00:00:00Z"),
        ] {
            let mut parameters = CertificateParams::default();
            parameters.not_before = date_time_ymd(1999, 12, 31);
            parameters.not_after = date_time_ymd(year, 2, 3);
            let key = KeyPair::generate().unwrap();
            let certificate = parameters.self_signed(&key).unwrap();
            let found = Validity::of(certificate.der()).unwrap();
            assert_eq!(found.start.to_string(), "1999-12-31T00:00:00Z");
            assert_eq!(found.end.to_string(), want);
            // What is cut off anywhere is no certificate: its outermost length says so.
            for length in 0..certificate.der().len() {
                assert_eq!(Validity::of(&certificate.der()[..length]), None);
            }
        }
    }
}
