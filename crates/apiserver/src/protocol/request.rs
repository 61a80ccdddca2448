//! A request, its path and its query, as parsed from HTTP.
//!
//! What they mean is decided by the router and the handlers.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;

use super::auth::User;
use crate::objects::status::Status;

/// A request whose body has been read.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) user: User,
}

/// A path under `/api` or `/apis`, or one that is neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Path {
    Resource(ResourcePath),
    /// Discovery, health and the like: the non-empty segments.
    Other(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    /// Empty when the path names none.
    pub(crate) namespace: String,
    pub(crate) plural: String,
    /// Empty for a collection.
    pub(crate) name: String,
    /// Empty on the main path.
    pub(crate) subresource: String,
    /// The old form `/api/v1/watch/...`.
    pub(crate) watch: bool,
}

impl Path {
    /// `None` for a path with too many parts or bytes that are not UTF-8.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut segments = Vec::new();
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            let decoded = percent_decode_str(segment).decode_utf8().ok()?;
            // An encoded slash would let a name leave its namespace.
            if decoded.contains('/') {
                return None;
            }
            segments.push(decoded.into_owned());
        }
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, mut rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Some(Self::Other(segments)),
        };
        let watch = rest.first() == Some(&"watch");
        if watch {
            rest = &rest[1..];
        }
        let (namespace, plural, name, subresource) = match *rest {
            [] => return (!watch).then_some(Self::Other(segments)),
            // A namespace is itself an object of the core group with these subresources.
            ["namespaces", name, subresource @ ("status" | "finalize")] if group.is_empty() => {
                ("", "namespaces", name, subresource)
            }
            ["namespaces", namespace, plural] => (namespace, plural, "", ""),
            ["namespaces", namespace, plural, name] => (namespace, plural, name, ""),
            ["namespaces", namespace, plural, name, sub] => (namespace, plural, name, sub),
            [plural] => ("", plural, "", ""),
            [plural, name] => ("", plural, name, ""),
            [plural, name, sub] => ("", plural, name, sub),
            _ => return None,
        };
        Some(Self::Resource(ResourcePath {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            plural: plural.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            watch,
        }))
    }
}

/// The parameters of a query, decoded, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let query = query.unwrap_or_default().trim_start_matches('?');
        let pairs = form_urlencoded::parse(query.as_bytes());
        Self(
            pairs
                .map(|(k, v)| (k.into_owned(), v.into_owned()))
                .collect(),
        )
    }

    /// The first value, or empty.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(key, _)| key == name)?;
        Some(value)
    }

    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// True for every value but `false` and `0`, even for an empty one.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        let value = self.find(name)?;
        Some(!matches!(
            value.to_ascii_lowercase().as_str(),
            "false" | "0"
        ))
    }

    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>, Status> {
        match self.find(name) {
            None | Some("") => Ok(None),
            Some(text) => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(error) => Err(not_an_integer(text, &error)),
            },
        }
    }
}

fn not_an_integer(text: &str, error: &std::num::ParseIntError) -> Status {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = match error.kind() {
        PosOverflow | NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    let text = Cow::Borrowed(text);
    Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(path: &str) -> String {
        match Path::parse(path) {
            None => "none".to_owned(),
            Some(Path::Other(segments)) => format!("other {}", segments.join("/")),
            Some(Path::Resource(r)) => format!(
                "{}|{}|{}|{}|{}|{}|{}",
                r.group, r.version, r.namespace, r.plural, r.name, r.subresource, r.watch
            ),
        }
    }

    #[test]
    fn paths_name_a_resource_in_every_form_clients_use() {
        for (path, want) in [
            ("/api/v1/pods", "|v1||pods|||false"),
            (
                "/api/v1/namespaces/n/pods/p/binding",
                "|v1|n|pods|p|binding|false",
            ),
            ("/api/v1/namespaces", "|v1||namespaces|||false"),
            ("/api/v1/namespaces/n", "|v1||namespaces|n||false"),
            (
                "/api/v1/namespaces/n/status",
                "|v1||namespaces|n|status|false",
            ),
            (
                "/api/v1/namespaces/n/finalize",
                "|v1||namespaces|n|finalize|false",
            ),
            ("/api/v1/watch/namespaces/n/pods", "|v1|n|pods|||true"),
            (
                "/apis/apps/v1/namespaces/n/deployments/d/scale",
                "apps|v1|n|deployments|d|scale|false",
            ),
            ("/apis/g/v1/namespaces/n/status", "g|v1|n|status|||false"),
            ("/api/v1/nodes/a%20b", "|v1||nodes|a b||false"),
            ("/api/v1/nodes/a%2Fb", "none"),
            ("/api/v1/nodes/%ff", "none"),
            ("/api/v1/a/b/c/d/e/f", "none"),
            ("/api/v1", "other api/v1"),
            ("/api/v1/watch", "none"),
            ("/", "other "),
        ] {
            assert_eq!(resource(path), want, "{path}");
        }
    }

    #[test]
    fn queries_are_decoded_and_numbers_checked() {
        let query = Query::parse(Some(
            "limit=5&fieldSelector=a%3Db&watch=&dryRun=All&dryRun=x&t=abc&",
        ));
        assert_eq!(query.integer("limit"), Ok(Some(5)));
        assert_eq!(query.text("fieldSelector"), "a=b");
        assert_eq!(query.flag("watch"), Some(true));
        assert_eq!(query.flag("nope"), None);
        assert_eq!(query.all("dryRun").collect::<Vec<_>>(), ["All", "x"]);
        let error = query.integer("t").unwrap_err();
        assert_eq!(
            error.message,
            r#"strconv.ParseInt: parsing "abc": invalid syntax"#
        );
    }
}
