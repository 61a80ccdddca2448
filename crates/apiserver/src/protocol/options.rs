//! The options of a request, parsed from its query and validated as in the real server.

use serde_json::json;

use crate::objects::decode::FieldValidation;
use crate::objects::status::{FieldError, FieldReason, Status};
use crate::protocol::request::Query;

const GROUP: &str = "meta.k8s.io";

/// How a list relates to the revision it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RevisionMatch {
    /// The newest revision; unset and `0` differ only in whether `limit` counts.
    Newest {
        limit_counts: bool,
    },
    /// Newest, but not older than this.
    NotBefore(u64),
    Exactly(u64),
}

#[derive(Debug, Clone)]
pub(crate) struct ListOptions {
    pub(crate) at: RevisionMatch,
    pub(crate) limit: Option<usize>,
    pub(crate) continue_token: String,
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
}

impl ListOptions {
    pub(crate) fn parse(query: &Query) -> Result<Self, Status> {
        let limit = query.integer("limit")?;
        query.integer("timeoutSeconds")?;
        let version = query.text("resourceVersion");
        let matching = query.text("resourceVersionMatch");
        let token = query.text("continue");
        let mut errors = Vec::new();
        if !matching.is_empty() {
            check_match(version, matching, token, &mut errors);
        }
        if query.find("sendInitialEvents").is_some() {
            errors.push(FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        refuse("ListOptions", &errors)?;
        let at = match (parse_list_revision(version)?, matching) {
            (0, _) => RevisionMatch::Newest {
                limit_counts: version.is_empty(),
            },
            (revision, "Exact") => RevisionMatch::Exactly(revision),
            (revision, _) => RevisionMatch::NotBefore(revision),
        };
        if !token.is_empty() && !matches!(version, "" | "0") {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        Ok(Self {
            at,
            limit: limit
                .and_then(|n| usize::try_from(n).ok())
                .filter(|n| *n > 0),
            continue_token: token.to_owned(),
            label_selector: query.text("labelSelector").to_owned(),
            field_selector: query.text("fieldSelector").to_owned(),
        })
    }
}

fn check_match(version: &str, matching: &str, token: &str, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "resourceVersionMatch";
    if version.is_empty() {
        let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
        errors.push(FieldError::forbidden(FIELD, why));
    }
    if !token.is_empty() {
        let why = "resourceVersionMatch is forbidden when continue is provided";
        errors.push(FieldError::forbidden(FIELD, why));
    }
    if !matches!(matching, "Exact" | "NotOlderThan") {
        let allowed = ["Exact", "NotOlderThan", ""];
        errors.push(FieldError::not_supported(FIELD, &json!(matching), &allowed));
    }
    if matching == "Exact" && version == "0" {
        let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
        errors.push(FieldError::forbidden(FIELD, why));
    }
}

/// Empty is 0. The real server passes the error on as it is, except for lists.
pub(crate) fn parse_revision(text: &str) -> Result<u64, Status> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        Status::internal(format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

fn parse_list_revision(text: &str) -> Result<u64, Status> {
    parse_revision(text).map_err(|error| {
        Status::bad_request(format!("invalid resource version: {}", error.message))
    })
}

#[derive(Debug, Clone)]
pub(crate) struct WatchOptions {
    /// `None` and 0 begin with the present state.
    pub(crate) revision: u64,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial: Option<bool>,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
}

impl WatchOptions {
    pub(crate) fn parse(query: &Query) -> Result<Self, Status> {
        query.integer("limit")?;
        let timeout = query.integer("timeoutSeconds")?;
        let matching = query.text("resourceVersionMatch");
        let send_initial = query.flag("sendInitialEvents");
        let mut errors = Vec::new();
        check_watch_match(matching, send_initial, &mut errors);
        refuse("ListOptions", &errors)?;
        let revision = parse_revision(query.text("resourceVersion"))?;
        Ok(Self {
            revision,
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial,
            timeout_seconds: timeout
                .and_then(|n| u64::try_from(n).ok())
                .filter(|n| *n > 0),
            label_selector: query.text("labelSelector").to_owned(),
            field_selector: query.text("fieldSelector").to_owned(),
        })
    }
}

fn check_watch_match(matching: &str, send_initial: Option<bool>, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "resourceVersionMatch";
    if send_initial.is_none() && !matching.is_empty() {
        let why =
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        errors.push(FieldError::forbidden(FIELD, why));
    }
    if send_initial.is_some() && matching != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden(FIELD, why));
    }
    if !matches!(matching, "" | "NotOlderThan") {
        let allowed = ["NotOlderThan"];
        errors.push(FieldError::not_supported(FIELD, &json!(matching), &allowed));
    }
}

/// Which options a verb takes: the kind that its errors name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteVerb {
    Create,
    Update,
    Patch,
}

#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    /// Empty when the client names none.
    pub(crate) field_manager: String,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: Option<bool>,
}

impl WriteOptions {
    pub(crate) fn parse(query: &Query, verb: WriteVerb) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let field_manager = query.text("fieldManager");
        check_manager(field_manager, &mut errors);
        let dry_run = check_dry_run(query.all("dryRun"), &mut errors);
        let field_validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let allowed = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    &json!(other),
                    &allowed,
                ));
                FieldValidation::Warn
            }
        };
        let kind = match verb {
            WriteVerb::Create => "CreateOptions",
            WriteVerb::Update => "UpdateOptions",
            WriteVerb::Patch => "PatchOptions",
        };
        refuse(kind, &errors)?;
        Ok(Self {
            dry_run,
            field_manager: field_manager.to_owned(),
            field_validation,
            force: query.flag("force"),
        })
    }
}

/// `dryRun=All` is the only one there is.
pub(crate) fn check_dry_run<'a>(
    values: impl Iterator<Item = &'a str>,
    errors: &mut Vec<FieldError>,
) -> bool {
    let values: Vec<&str> = values.filter(|value| !value.is_empty()).collect();
    if values.iter().any(|value| *value != "All") {
        errors.push(FieldError::not_supported(
            "dryRun",
            &json!(values),
            &["All"],
        ));
    }
    !values.is_empty()
}

fn check_manager(manager: &str, errors: &mut Vec<FieldError>) {
    if manager.len() > 128 {
        errors.push(FieldError::new(
            "fieldManager",
            FieldReason::TooLong,
            "Too long: may not be more than 128 bytes",
        ));
    }
    if manager.chars().any(char::is_control) {
        let why = "should only contain printable characters";
        errors.push(FieldError::invalid("fieldManager", &json!(manager), why));
    }
}

/// 422 on an options kind, when there is something to refuse.
pub(crate) fn refuse(kind: &str, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(GROUP, kind, "", errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_a_revision_in_five_ways() {
        for (query, want) in [
            ("", Ok(RevisionMatch::Newest { limit_counts: true })),
            (
                "resourceVersion=0",
                Ok(RevisionMatch::Newest {
                    limit_counts: false,
                }),
            ),
            ("resourceVersion=7", Ok(RevisionMatch::NotBefore(7))),
            (
                "resourceVersion=7&resourceVersionMatch=Exact",
                Ok(RevisionMatch::Exactly(7)),
            ),
            ("resourceVersion=abc", Err(400)),
            ("resourceVersionMatch=Exact", Err(422)),
            ("resourceVersion=0&resourceVersionMatch=Exact", Err(422)),
            ("resourceVersion=7&resourceVersionMatch=Foo", Err(422)),
            ("resourceVersion=7&continue=x", Err(400)),
            ("sendInitialEvents=true", Err(422)),
            ("limit=abc", Err(400)),
        ] {
            let got = ListOptions::parse(&Query::parse(Some(query)));
            assert_eq!(got.map(|o| o.at).map_err(|e| e.code), want, "{query}");
        }
    }

    #[test]
    fn watches_refuse_incomplete_streaming_options() {
        for (query, want) in [
            ("", Ok(0)),
            ("resourceVersion=9&timeoutSeconds=5", Ok(9)),
            (
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                Ok(0),
            ),
            ("sendInitialEvents=true", Err(422)),
            ("resourceVersionMatch=NotOlderThan", Err(422)),
            ("resourceVersion=abc", Err(500)),
        ] {
            let got = WatchOptions::parse(&Query::parse(Some(query)));
            assert_eq!(got.map(|o| o.revision).map_err(|e| e.code), want, "{query}");
        }
    }

    #[test]
    fn write_options_are_checked_together() {
        let long = "x".repeat(129);
        let query = format!("dryRun=Foo&fieldValidation=Foo&fieldManager={long}");
        let error =
            WriteOptions::parse(&Query::parse(Some(&query)), WriteVerb::Create).unwrap_err();
        assert_eq!(
            error.message,
            "CreateOptions.meta.k8s.io \"\" is invalid: [fieldManager: Too long: may not be more than \
             128 bytes, dryRun: Unsupported value: [\"Foo\"]: supported values: \"All\", \
             fieldValidation: Unsupported value: \"Foo\": supported values: \"\", \"Ignore\", \
             \"Strict\", \"Warn\"]"
        );
    }
}
