//! AdmissionReviews of `admission.k8s.io/v1`: what the API server sends, and what it gets.

use api::contracts::BIND_REFUSED;
use k8s_openapi::ByteString;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::intake::{MOST_VALUES, SMALL_BODY};
use crate::serve::Caller;

const VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// A request to the API server, before it is carried out.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Review {
    pub uid: String,
    pub resource: GroupResource,
    pub sub_resource: Option<String>,
    /// Empty for an object whose name is not known yet.
    pub name: String,
    pub namespace: String,
    pub operation: String,
    /// Null for a deletion.
    pub object: Value,
    /// Null for a creation.
    pub old_object: Value,
    /// The caller of the API server.
    pub user_info: Caller,
    /// Nothing will be written.
    pub dry_run: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GroupResource {
    pub group: String,
    pub resource: String,
}

/// The answer to a review.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReviewAnswer {
    /// Why the request is refused, for the user.
    pub refusal: Option<String>,
    /// Why the request is refused, for programs.
    pub reason: RefusalReason,
    /// The operations of a JSON patch.
    pub patch: Vec<Value>,
    /// For the user, who sees them also if the request is allowed.
    pub warnings: Vec<String>,
}

/// `status.reason` of a refused request, with its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RefusalReason {
    #[default]
    BadRequest,
    Forbidden,
    /// A bind that must not be committed now. Our schedulers know it by this reason.
    BindRefused,
}

impl RefusalReason {
    fn status(self) -> (u16, &'static str) {
        match self {
            Self::BadRequest => (400, "BadRequest"),
            Self::Forbidden => (403, "Forbidden"),
            Self::BindRefused => (409, BIND_REFUSED),
        }
    }
}

/// This replica cannot answer. The API server acts by the failure policy of the webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoAnswer(pub String);

impl ReviewAnswer {
    pub fn refuse(message: impl Into<String>) -> Self {
        Self {
            refusal: Some(message.into()),
            ..Self::default()
        }
    }
}

/// Why a body is no review that can be answered.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionReviewError {
    #[error("the body is not a valid AdmissionReview: {0}")]
    Json(String),
    #[error("the body is {found}, not {KIND} of {VERSION}")]
    Kind { found: String },
    #[error("the AdmissionReview has no request with a uid")]
    NoRequest,
    #[error("{text}")]
    TooManyValues { uid: String, text: String },
}

/// Kubernetes limits the texts of warnings that one response carries, and shortens those that are longer.
const LONGEST_WARNING: usize = 256;
const MOST_WARNINGS: usize = 16;

/// A body. `R` is the request, as far as it is decoded.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewBody<R> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<R>,
}

impl<R> ReviewBody<R> {
    fn request(self) -> Result<R, AdmissionReviewError> {
        if self.api_version != VERSION || self.kind != KIND {
            let found = format!("`{}` of `{}`", self.kind, self.api_version);
            return Err(AdmissionReviewError::Kind { found });
        }
        self.request.ok_or(AdmissionReviewError::NoRequest)
    }
}

/// A request whose objects are not decoded.
#[derive(Deserialize)]
struct SealedRequest<'a> {
    #[serde(default)]
    uid: String,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow, rename = "oldObject")]
    old_object: Option<&'a RawValue>,
}

/// Reads the request of a review.
pub fn read(body: &[u8]) -> Result<Review, AdmissionReviewError> {
    if body.len() > SMALL_BODY {
        let count = values_in(body);
        if count > MOST_VALUES {
            check_values(body, count)?;
        }
    }
    let invalid = |error: serde_json::Error| AdmissionReviewError::Json(error.to_string());
    // In one pass: a large object is decoded once.
    let envelope: ReviewBody<Review> = serde_json::from_slice(body).map_err(|error| {
        // Another kind has another request.
        let envelope: Result<ReviewBody<IgnoredAny>, _> = serde_json::from_slice(body);
        let other = envelope.ok().and_then(|it| it.request().err());
        other.unwrap_or_else(|| invalid(error))
    })?;
    let review = envelope.request()?;
    match review.uid.is_empty() {
        true => Err(AdmissionReviewError::NoRequest),
        false => Ok(review),
    }
}

/// Each part of a body with so many values must have few enough: they take far more memory than their text.
fn check_values(body: &[u8], all: usize) -> Result<(), AdmissionReviewError> {
    // Also one that is wrong only at its end must not be decoded.
    let sealed: ReviewBody<SealedRequest<'_>> = serde_json::from_slice(body)
        .map_err(|error| AdmissionReviewError::Json(error.to_string()))?;
    let request = sealed.request()?;
    let count = |part: Option<&RawValue>| part.map_or(0, |it| values_in(it.get().as_bytes()));
    let (object, old) = (count(request.object), count(request.old_object));
    let rest = all.saturating_sub(object + old);
    for (name, count) in [
        ("object", object),
        ("old object", old),
        ("rest of the request", rest),
    ] {
        if count > MOST_VALUES {
            let text = format!(
                "the {name} has {count} values in JSON: one with more than {MOST_VALUES} cannot be judged; use fewer \
                 containers, or shorter lists"
            );
            let uid = request.uid;
            return Err(AdmissionReviewError::TooManyValues { uid, text });
        }
    }
    Ok(())
}

/// How much there is in a JSON text, without decoding it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct JsonCounts {
    /// At least the number of values: each but the first comes after a bracket, a comma, or a key that does.
    pub(super) values: usize,
    pub(super) objects: usize,
    pub(super) arrays: usize,
}

impl JsonCounts {
    pub(super) fn of(json: &[u8]) -> Self {
        let (mut commas, mut rest) = (0, json);
        let mut counts = Self::default();
        while let Some((byte, more)) = rest.split_first() {
            rest = more;
            match byte {
                b'"' => rest = after_string(more),
                b',' => commas += 1,
                b'[' => counts.arrays += 1,
                b'{' => counts.objects += 1,
                _ => {}
            }
        }
        counts.values = 1 + commas + counts.arrays + counts.objects;
        counts
    }
}

fn values_in(json: &[u8]) -> usize {
    JsonCounts::of(json).values
}

/// What comes after the end of a string.
fn after_string(mut rest: &[u8]) -> &[u8] {
    loop {
        match memchr::memchr2(b'"', b'\\', rest) {
            Some(end) if rest[end] == b'"' => return &rest[end + 1..],
            Some(escape) => rest = rest.get(escape + 2..).unwrap_or_default(),
            None => return &[],
        }
    }
}

/// The review with its answer.
pub fn write(uid: &str, answer: &ReviewAnswer) -> Vec<u8> {
    let mut response = json!({"uid": uid, "allowed": answer.refusal.is_none()});
    if let Some(message) = &answer.refusal {
        let (code, reason) = answer.reason.status();
        response["status"] = json!({"code": code, "reason": reason, "message": message});
    }
    if !answer.patch.is_empty() && answer.refusal.is_none() {
        // Values are always written.
        let patch = serde_json::to_vec(&answer.patch).unwrap_or_default();
        response["patchType"] = "JSONPatch".into();
        response["patch"] = json!(ByteString(patch));
    }
    if !answer.warnings.is_empty() {
        let warnings = answer.warnings.iter().take(MOST_WARNINGS);
        let short = |text: &String| text.chars().take(LONGEST_WARNING).collect::<String>();
        response["warnings"] = warnings.map(short).collect::<Vec<_>>().into();
    }
    json!({"apiVersion": VERSION, "kind": KIND, "response": response})
        .to_string()
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(request: Value) -> Vec<u8> {
        let review = json!({"apiVersion": VERSION, "kind": KIND, "request": request});
        review.to_string().into_bytes()
    }

    #[test]
    fn a_review_and_its_answer() {
        let request = json!({"uid": "u", "operation": "CREATE", "namespace": "shop", "subResource": "resize",
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "object": {"a": 1}, "dryRun": true});
        let review = read(&body(request)).unwrap();
        assert_eq!(
            (
                &review.uid[..],
                &review.operation[..],
                &review.namespace[..]
            ),
            ("u", "CREATE", "shop")
        );
        assert_eq!(review.resource.resource, "pods");
        assert_eq!(review.sub_resource.as_deref(), Some("resize"));
        let answer = |answer: ReviewAnswer| -> Value {
            serde_json::from_slice(&write("u", &answer)).unwrap()
        };
        assert_eq!(
            answer(ReviewAnswer::default())["response"],
            json!({"uid": "u", "allowed": true})
        );
        let patched = answer(ReviewAnswer {
            patch: vec![json!({"op": "remove", "path": "/a"})],
            ..ReviewAnswer::default()
        });
        let patch: ByteString =
            serde_json::from_value(patched["response"]["patch"].clone()).unwrap();
        assert_eq!(patch.0, br#"[{"op":"remove","path":"/a"}]"#);
        let refused = answer(ReviewAnswer::refuse("no"));
        assert_eq!(refused["response"]["allowed"], false);
        assert_eq!(refused["response"]["status"]["message"], "no");
        let warned = answer(ReviewAnswer {
            warnings: vec!["x".repeat(1000); 100],
            ..ReviewAnswer::default()
        });
        let warnings = warned["response"]["warnings"].as_array().unwrap();
        assert_eq!(
            (warnings.len(), warnings[0].as_str().unwrap().len()),
            (16, 256)
        );
    }

    #[test]
    fn values_are_counted_without_decoding() {
        for (text, want) in [
            ("", 1),
            ("1", 1),
            ("[]", 2),
            ("[0,0,0]", 4),
            (r#"{"a":{},"b":"x"}"#, 4),
            (r#"{"a,[":"{\"\\","b":1}"#, 3),
            (r#""an open string,,,,\"#, 1),
        ] {
            assert_eq!(values_in(text.as_bytes()), want, "{text}");
        }
    }

    #[test]
    fn objects_with_very_many_values_are_refused() {
        let list = |count: usize| json!({"list": vec![0; count]});
        let (much, too_much) = (list(MOST_VALUES - 10), list(MOST_VALUES + 1));
        for (case, object, old, want) in [
            ("an update", &much, &much, None),
            (
                "the object",
                &too_much,
                &much,
                Some("the object has 200003 values"),
            ),
            (
                "the old one",
                &much,
                &too_much,
                Some("the old object has 200003 values"),
            ),
        ] {
            let request = json!({"uid": "u", "object": object, "oldObject": old});
            match (read(&body(request)), want) {
                (Ok(review), None) => assert_eq!(review.uid, "u"),
                (Err(AdmissionReviewError::TooManyValues { uid, text }), Some(want)) => {
                    assert!(uid == "u" && text.contains(want), "{case}: {text}");
                }
                (other, _) => panic!("{case}: {other:?}"),
            }
        }
    }

    #[test]
    fn bodies_that_are_no_reviews() {
        let older = json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": KIND, "request": {"uid": "u"}});
        let table = json!({"apiVersion": "meta.k8s.io/v1", "kind": "Table", "rows": []});
        let half = body(json!({"uid": "u"}));
        for (case, body, want) in [
            (
                "another version",
                older.to_string().into_bytes(),
                "`AdmissionReview` of `admission.k8s.io/v1beta1`",
            ),
            (
                "a table",
                table.to_string().into_bytes(),
                "`Table` of `meta.k8s.io/v1`",
            ),
            (
                "half of it",
                half[..half.len() / 2].to_vec(),
                "not a valid AdmissionReview: EOF",
            ),
            ("nothing", Vec::new(), "EOF"),
            ("no request", body(Value::Null), "no request with a uid"),
            ("no uid", body(json!({})), "no request with a uid"),
            ("another type", body(json!({"uid": 5})), "invalid type"),
            (
                "a request of another kind",
                json!({"apiVersion": "v1", "kind": "Other", "request": 5})
                    .to_string()
                    .into_bytes(),
                "`Other` of `v1`",
            ),
        ] {
            let error = read(&body).unwrap_err().to_string();
            assert!(error.contains(want), "{case}: {error}");
        }
    }
}
