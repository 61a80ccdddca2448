//! The named string formats that the server checks; it ignores all others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::objects::names::dns_subdomain;

pub(super) fn matches(format: &str, text: &str) -> bool {
    match format {
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is_duration(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(text),
        "byte" => STANDARD.decode(text).is_ok(),
        "email" => text
            .split_once('@')
            .is_some_and(|(user, host)| !user.is_empty() && !host.is_empty()),
        "uri" => text
            .split_once(':')
            .is_some_and(|(scheme, _)| is_scheme(scheme)),
        "hostname" => dns_subdomain(&text.to_lowercase()).is_none(),
        _ => true,
    }
}

/// `1h30m`, `1.5s`, `100ms` or `3 days`.
fn is_duration(text: &str) -> bool {
    let text = text.trim().trim_start_matches(['+', '-']);
    let mut rest = text;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        if digits.len() == rest.len() {
            return false;
        }
        let unit = digits.trim_start();
        let end = unit
            .find(|c: char| c.is_ascii_digit() || c == '.' || c == ' ')
            .unwrap_or(unit.len());
        let known = [
            "ns", "us", "µs", "ms", "s", "m", "h", "d", "w", "second", "seconds", "minute",
            "minutes", "hour", "hours", "day", "days", "week", "weeks",
        ];
        if !known.contains(&&unit[..end]) {
            return rest == "0" && parts == 0;
        }
        rest = unit[end..].trim_start();
        parts += 1;
    }
    parts > 0
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let most = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn is_uuid(text: &str) -> bool {
    let hex: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    hex.len() == 32 && hex.iter().all(u8::is_ascii_hexdigit)
}

fn is_scheme(text: &str) -> bool {
    let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_checked_by_format() {
        for (format, yes, no) in [
            ("date-time", "2030-01-01T00:00:00Z", "2030-01-01"),
            ("date", "2030-01-01", "tomorrow"),
            ("duration", "1h30m", "x"),
            ("duration", "3 days", "3 parsecs"),
            ("duration", "0", ""),
            ("ipv4", "1.2.3.4", "1.2.3"),
            ("ipv6", "::1", "1.2.3.4"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid", "34602044-fa25-445a-b7d8-5db55815b972", "34602044"),
            ("byte", "eA==", "!!"),
            ("email", "a@b", "a"),
            ("uri", "http://x", "x"),
            ("hostname", "Example.com", "x y"),
        ] {
            assert!(matches(format, yes), "{format} {yes}");
            assert!(!matches(format, no), "{format} {no}");
        }
        assert!(matches("unheard-of", "anything"));
    }
}
