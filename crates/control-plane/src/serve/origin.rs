//! Requests to a plain server on loopback must be meant for it.
//!
//! A browser sends requests of any web page to any address. The owner of a domain can let its name resolve to 127.0.0.1,
//! so that the browser regards the server as part of the page (DNS rebinding). Such requests name the domain in `Host`,
//! and those of other pages in `Origin`.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Uri};

/// The names of a server on loopback.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalNames {
    /// The address that it listens on.
    pub(super) address: IpAddr,
}

impl LocalNames {
    /// An error names what is not allowed. HTTP/1.0 needs no `Host`; browsers always send it.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), String> {
        if let Some(authority) = uri.authority()
            && !self.has(authority.host())
        {
            return Err(self.refused("host", authority.as_str()));
        }
        for host in headers.get_all(HOST) {
            let host = String::from_utf8_lossy(host.as_bytes());
            if !host.parse().is_ok_and(|it: Authority| self.has(it.host())) {
                return Err(self.refused("host", &host));
            }
        }
        for origin in headers.get_all(ORIGIN) {
            let origin = String::from_utf8_lossy(origin.as_bytes());
            let uri = origin.parse::<Uri>().ok();
            let is_page = uri.filter(|it| it.scheme().is_some());
            if !is_page.is_some_and(|it| it.host().is_some_and(|it| self.has(it))) {
                return Err(self.refused("origin", &origin));
            }
        }
        Ok(())
    }

    fn has(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        match bare.unwrap_or(host).parse::<IpAddr>() {
            Ok(ip) => {
                let ip = ip.to_canonical();
                ip.is_loopback() || ip == self.address.to_canonical()
            }
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        }
    }

    fn refused(&self, what: &str, found: &str) -> String {
        format!(
            "{what} `{}` is not allowed: use localhost, 127.0.0.1, [::1] or {}",
            found.escape_debug(),
            self.address
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_names_are_allowed() {
        let names = LocalNames {
            address: [127, 0, 0, 1].into(),
        };
        for (uri, host, origin, allowed) in [
            ("/", None, None, true),
            ("/", Some("localhost"), None, true),
            ("/", Some("LocalHost:10259"), None, true),
            ("/", Some("127.0.0.1:10259"), None, true),
            ("/", Some("127.8.9.1"), None, true),
            ("/", Some("[::1]:1"), None, true),
            ("/", Some("[::ffff:127.0.0.1]:1"), None, true),
            ("/", Some("evil.example.com"), None, false),
            ("/", Some("localhost.example.com"), None, false),
            ("/", Some("127.0.0.1.example.com:1"), None, false),
            ("/", Some("10.0.0.1"), None, false),
            ("/", Some(""), None, false),
            ("/", Some("localhost@example.com"), None, false),
            ("/", Some("a b"), None, false),
            ("http://localhost/", Some("localhost"), None, true),
            ("http://example.com/", Some("localhost"), None, false),
            ("/", Some("localhost"), Some("http://localhost:3000"), true),
            ("/", Some("localhost"), Some("http://[::1]"), true),
            ("/", Some("localhost"), Some("https://example.com"), false),
            ("/", Some("localhost"), Some("null"), false),
            ("/", Some("localhost"), Some("localhost"), false),
            ("/", None, Some("http://example.com"), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(host) = host {
                headers.insert(HOST, host.parse().unwrap());
            }
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            let checked = names.check(&uri.parse().unwrap(), &headers);
            assert_eq!(checked.is_ok(), allowed, "{uri} {host:?} {origin:?}");
        }
        // One that is allowed does not hide another.
        let mut headers = HeaderMap::new();
        headers.append(HOST, "localhost".parse().unwrap());
        headers.append(HOST, "example.com".parse().unwrap());
        assert!(names.check(&"/".parse().unwrap(), &headers).is_err());
    }
}
