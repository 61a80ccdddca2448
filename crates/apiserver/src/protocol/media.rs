//! Which format the client requests: `Accept`, `?pretty` and `User-Agent`.

use http::HeaderMap;
use http::header::{ACCEPT, USER_AGENT};

use crate::objects::status::{Details, Status};
use crate::protocol::request::Query;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accept {
    pub(crate) format: Format,
    pub(crate) representation: Representation,
    /// Indented JSON, for people.
    pub(crate) pretty: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
}

/// What the request is for: two parts of the real server parse `Accept` differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// A built-in kind or discovery; collections of kinds can be watched.
    Builtin {
        streams: bool,
    },
    Custom,
}

/// The requested transformation of an object or list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    Whole,
    Table,
    /// `PartialObjectMetadata`
    Metadata,
    /// `PartialObjectMetadataList`
    MetadataList,
}

impl Accept {
    pub(crate) const PLAIN: Self = Self {
        format: Format::Json,
        representation: Representation::Whole,
        pretty: false,
    };

    /// The first acceptable entry of the list wins.
    pub(crate) fn negotiate(
        headers: &HeaderMap,
        query: &Query,
        offer: Offer,
    ) -> Result<Self, Status> {
        let pretty = wants_indentation(headers, query);
        let list = header(headers, ACCEPT.as_str());
        if list.trim().is_empty() {
            return Ok(Self {
                pretty,
                ..Self::PLAIN
            });
        }
        let mut entries = list.split(',').map(MediaType::parse);
        let choice =
            entries.find_map(|entry| Some((entry.format(offer)?, entry.representation()?)));
        let (format, representation) = choice.ok_or_else(|| refusal(list, offer))?;
        Ok(Self {
            format,
            representation,
            pretty,
        })
    }

    /// The format of errors, which must not depend on a valid `Accept`: that of the first entry
    /// for whole objects, else indented JSON.
    pub(crate) fn for_errors(headers: &HeaderMap, query: &Query) -> Self {
        let list = header(headers, ACCEPT.as_str());
        let pretty = wants_indentation(headers, query);
        if list.trim().is_empty() {
            return Self {
                pretty,
                ..Self::PLAIN
            };
        }
        let mut entries = list.split(',').map(MediaType::parse);
        let format = entries.find_map(|entry| {
            let whole = entry.representation() == Some(Representation::Whole);
            entry.format(Offer::Custom).filter(|_| whole)
        });
        Self {
            format: format.unwrap_or(Format::Json),
            representation: Representation::Whole,
            pretty: pretty || format.is_none(),
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self.format {
            Format::Json => "application/json",
            Format::Yaml => "application/yaml",
        }
    }
}

/// The real server distinguishes an unknown media type from an unknown transformation of a known one.
fn refusal(list: &str, offer: Offer) -> Status {
    let mut status = Status::not_acceptable();
    let mut entries = list.split(',').map(MediaType::parse);
    let Offer::Builtin { streams } = offer else {
        return status;
    };
    if entries.any(|entry| entry.format(offer).is_some()) {
        return status;
    }
    status.message = "406: Not Acceptable\n\nAvailable representations: application/json, \
                      application/yaml, application/vnd.kubernetes.protobuf"
        .to_owned();
    if streams {
        status.message.push_str(
            ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
        );
    }
    status.details = Some(Details::default());
    status
}

/// Whether the list names this entry with these parameters: aggregated discovery is chosen by it.
pub(crate) fn accepts(headers: &HeaderMap, name: &str, parameters: &[(&str, &str)]) -> bool {
    header(headers, ACCEPT.as_str()).split(',').any(|entry| {
        let entry = MediaType::parse(entry);
        entry.name == name
            && parameters
                .iter()
                .all(|(key, value)| entry.parameter(key) == Some(value))
    })
}

fn wants_indentation(headers: &HeaderMap, query: &Query) -> bool {
    if let Some(asked) = query.flag("pretty") {
        return asked;
    }
    let agent = header(headers, USER_AGENT.as_str());
    ["curl", "Wget", "Mozilla/5.0"]
        .iter()
        .any(|tool| agent.starts_with(tool))
}

/// The value of a header; empty if it is absent or not text.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

struct MediaType<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaType<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        Self {
            name: parts.next().unwrap_or_default(),
            parameters: parts.filter_map(|part| part.split_once('=')).collect(),
        }
    }

    fn format(&self, offer: Offer) -> Option<Format> {
        match self.name {
            "*/*" | "application/json" => Some(Format::Json),
            "application/*" if offer == Offer::Custom => Some(Format::Json),
            "application/yaml" => Some(Format::Yaml),
            _ => None,
        }
    }

    fn representation(&self) -> Option<Representation> {
        let known = matches!(self.parameter("v"), Some("v1" | "v1beta1"))
            && self.parameter("g") == Some("meta.k8s.io");
        match self.parameter("as") {
            None => Some(Representation::Whole),
            Some("Table") if known => Some(Representation::Table),
            Some("PartialObjectMetadata") if known => Some(Representation::Metadata),
            Some("PartialObjectMetadataList") if known => Some(Representation::MetadataList),
            Some(_) => None,
        }
    }

    fn parameter(&self, key: &str) -> Option<&'a str> {
        let (_, value) = self.parameters.iter().find(|(known, _)| *known == key)?;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILTIN: Offer = Offer::Builtin { streams: false };

    #[test]
    fn the_first_acceptable_entry_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (accept, want) in [
            ("", Some((Format::Json, Representation::Whole))),
            ("*/*", Some((Format::Json, Representation::Whole))),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Some((Format::Json, Representation::Whole)),
            ),
            (
                "application/yaml",
                Some((Format::Yaml, Representation::Whole)),
            ),
            (table, Some((Format::Json, Representation::Table))),
            (
                "application/json;as=Foo;v=v1;g=meta.k8s.io,application/json",
                Some((Format::Json, Representation::Whole)),
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some((Format::Json, Representation::MetadataList)),
            ),
            ("application/foo", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            let got = Accept::negotiate(&headers, &Query::default(), BUILTIN);
            assert_eq!(
                got.ok().map(|a| (a.format, a.representation)),
                want,
                "{accept}"
            );
        }
    }

    #[test]
    fn browsers_and_curl_get_indented_json() {
        for (agent, query, want) in [
            ("curl/8", None, true),
            ("kubectl/v1.36.4", None, false),
            ("kubectl/v1.36.4", Some("pretty=true"), true),
            ("curl/8", Some("pretty=0"), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, agent.parse().unwrap());
            let accept = Accept::negotiate(&headers, &Query::parse(query), BUILTIN).unwrap();
            assert_eq!(accept.pretty, want, "{agent} {query:?}");
        }
    }

    #[test]
    fn errors_are_indented_unless_the_client_accepts_json() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (accept, indented) in [
            ("", false),
            ("application/json", false),
            ("application/foo", true),
            (table, true),
            (&format!("{table},application/json"), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            let got = Accept::for_errors(&headers, &Query::default());
            assert_eq!(
                (got.representation, got.pretty),
                (Representation::Whole, indented),
                "{accept}"
            );
        }
    }
}
