//! AdmissionReview: the request to a webhook, and its answer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Admission;
use super::hook::{Hook, Matched};
use crate::kinds::kind::Kind;
use crate::objects::decode::{self, group_version_kind};
use crate::objects::fields::{at, items, text};
use crate::objects::golang;
use crate::objects::status::{Cause, Details, Status};

const GROUP: &str = "admission.k8s.io";

/// A review that is ready to be sent.
pub(super) struct ReviewRequest {
    uid: String,
    /// `v1` or `v1beta1`, the first that the webhook names.
    version: &'static str,
    mutating: bool,
    pub(super) body: Bytes,
}

/// What a webhook answered.
pub(super) struct Verdict {
    pub(super) allowed: Result<(), Status>,
    pub(super) patch: Option<Vec<u8>>,
    pub(super) warnings: Vec<String>,
}

pub(super) fn request(
    admission: &Admission<'_>,
    hook: &Hook,
    matched: &Matched,
    object: Option<&Value>,
    old: Option<&Value>,
) -> ReviewRequest {
    let call = admission.call;
    let body = &admission.body;
    let own = &call.served.kind;
    let other = matched.kind(admission);
    let resource = |kind: &Kind| json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
    let of_body = {
        let (group, version) = body
            .api_version
            .split_once('/')
            .unwrap_or(("", body.api_version));
        json!({"group": group, "version": version, "kind": body.kind})
    };
    let kind = match matched.is_other() {
        true => json!({"group": other.group, "version": other.version, "kind": other.kind}),
        false => of_body.clone(),
    };
    let uid = Uuid::new_v4().to_string();
    let user = &call.request.user;
    let mut request = json!({
        "uid": uid, "kind": kind, "resource": resource(other),
        "requestKind": of_body, "requestResource": resource(own),
        "operation": admission.operation.as_str(),
        "userInfo": {"username": user.name, "groups": user.groups},
    });
    for (key, value) in [
        ("subResource", admission.subresource),
        ("requestSubResource", admission.subresource),
        ("name", &admission.name),
        ("namespace", admission.namespace()),
    ] {
        if !value.is_empty() {
            request[key] = json!(value);
        }
    }
    let view = |object: &Value| matched.view(admission, object);
    request["object"] = match object.map(view) {
        Some(object) if hook.mutating => admission.without_hidden(object),
        object => object.unwrap_or_default(),
    };
    request["oldObject"] = old.map(view).unwrap_or_default();
    request["dryRun"] = json!(admission.dry_run);
    let mut options = admission.options.clone();
    options["kind"] = json!(admission.operation.options());
    options["apiVersion"] = json!("meta.k8s.io/v1");
    request["options"] = options;
    let versions = items(hook.json(), "admissionReviewVersions").iter();
    let version = versions.filter_map(Value::as_str).find_map(|version| {
        ["v1", "v1beta1"]
            .into_iter()
            .find(|known| *known == version)
    });
    let version = version.unwrap_or("v1");
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": format!("{GROUP}/{version}"), "request": request,
    });
    ReviewRequest {
        uid,
        version,
        mutating: hook.mutating,
        body: review.to_string().into(),
    }
}

impl ReviewRequest {
    /// The webhook's decision, or what is wrong with the answer.
    pub(super) fn read(&self, hook: &Hook, answer: &[u8]) -> Result<Verdict, String> {
        let review: Value = serde_json::from_slice(answer).map_err(|error| {
            let why = decode::json_error(&error);
            format!("failed to call webhook: couldn't get version/kind; json parse error: {why}")
        })?;
        self.check_kind(&review)?;
        let response = self
            .check_response(&review)
            .map_err(|why| format!("received invalid webhook response: {why}"))?;
        let said = items(response, "warnings").iter();
        let warnings = said.filter_map(Value::as_str).map(str::to_owned).collect();
        let allowed = match at(response, "allowed") == &Value::Bool(true) {
            true => Ok(()),
            false => Err(denied(hook.name(), at(response, "status"))),
        };
        let patch = match at(response, "patch").as_str() {
            Some(patch) if self.mutating && allowed.is_ok() => {
                Some(self.decode_patch(response, patch)?)
            }
            _ => None,
        };
        Ok(Verdict {
            allowed,
            patch,
            warnings,
        })
    }

    /// An answer of another type cannot be read; one without a type counts as a review.
    fn check_kind(&self, review: &Value) -> Result<(), String> {
        let (version, kind) = (text(review, "apiVersion"), text(review, "kind"));
        let is_review = matches!(kind, "" | "AdmissionReview");
        let in_group = ["v1", "v1beta1"]
            .iter()
            .find(|known| version == format!("{GROUP}/{known}"));
        let why = match in_group {
            _ if version.is_empty() && is_review => return Ok(()),
            Some(found) if is_review && **found == *self.version => return Ok(()),
            Some(found) if is_review => format!(
                "converting ({found}.AdmissionReview) to ({}.AdmissionReview): unknown conversion",
                self.version
            ),
            _ => format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
            ),
        };
        Err(format!("failed to call webhook: {why}"))
    }

    fn check_response<'a>(&self, review: &'a Value) -> Result<&'a Value, String> {
        let response = at(review, "response");
        if !response.is_object() {
            return Err("webhook response was absent".to_owned());
        }
        let uid = text(response, "uid");
        if self.version == "v1" && uid != self.uid {
            return Err(format!("expected response.uid={:?}, got {uid:?}", self.uid));
        }
        let (version, kind) = (text(review, "apiVersion"), text(review, "kind"));
        if version.is_empty() || kind.is_empty() {
            let expected = format!("{GROUP}/{}", self.version);
            return Err(format!(
                "expected webhook response of {}, got {}",
                group_version_kind(&expected, "AdmissionReview"),
                group_version_kind(version, kind)
            ));
        }
        let has_patch = !text(response, "patch").is_empty();
        let patch_type = at(response, "patchType");
        let wrong = match (self.mutating, has_patch, patch_type.as_str()) {
            _ if self.version != "v1" => return Ok(response),
            (false, true, _) => "validating webhook may not return response.patch",
            (false, _, Some(_)) => "validating webhook may not return response.patchType",
            (true, true, None) => "webhook returned response.patch but not response.patchType",
            (true, false, Some(_)) => "webhook returned response.patchType but not response.patch",
            (true, true, Some("")) => "webhook returned invalid response.patchType of \"\"",
            _ => return Ok(response),
        };
        Err(wrong.to_owned())
    }

    fn decode_patch(&self, response: &Value, patch: &str) -> Result<Vec<u8>, String> {
        let undecodable =
            |why: String| format!("received undecodable patch in webhook response: {why}");
        let patch = STANDARD
            .decode(patch)
            .map_err(|error| undecodable(error.to_string()))?;
        match serde_json::from_slice::<Value>(&patch) {
            Ok(Value::Array(_) | Value::Null) => {}
            Ok(other) => {
                let found = golang::json_type(&other);
                return Err(undecodable(format!(
                    "json: cannot unmarshal {found} into Go value of type jsonpatch.Patch"
                )));
            }
            Err(error) => return Err(undecodable(decode::json_error(&error))),
        }
        match at(response, "patchType").as_str() {
            None | Some("JSONPatch") => Ok(patch),
            Some(other) => Err(format!("unsupported patch type {other:?}")),
        }
    }
}

/// The webhook's own status, completed.
fn denied(webhook: &str, status: &Value) -> Status {
    let by = format!("admission webhook {webhook:?} denied the request");
    let message = match (text(status, "message"), text(status, "reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", why) | (why, _) => format!("{by}: {why}"),
    };
    let code = at(status, "code")
        .as_u64()
        .and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
    let mut denied = Status::new(code, "", message);
    denied.reason = text(status, "reason").to_owned().into();
    let details = at(status, "details");
    if details.is_object() {
        let owned = |object: &Value, field: &str| text(object, field).to_owned();
        let cause = |cause: &Value| Cause {
            reason: owned(cause, "reason").into(),
            message: owned(cause, "message"),
            field: owned(cause, "field"),
        };
        let retry = at(details, "retryAfterSeconds").as_u64();
        denied.details = Some(Details {
            name: owned(details, "name"),
            group: owned(details, "group"),
            kind: owned(details, "kind"),
            uid: owned(details, "uid"),
            causes: items(details, "causes").iter().map(cause).collect(),
            retry_after_seconds: retry.and_then(|seconds| u32::try_from(seconds).ok()),
        });
    }
    denied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_is_an_error_whatever_the_webhook_says() {
        for (status, want) in [
            (
                json!(null),
                (
                    400,
                    "",
                    "admission webhook \"a.b.c\" denied the request without explanation",
                ),
            ),
            (
                json!({"code": 200, "message": "no"}),
                (
                    400,
                    "",
                    "admission webhook \"a.b.c\" denied the request: no",
                ),
            ),
            (
                json!({"code": 403, "reason": "Forbidden"}),
                (
                    403,
                    "Forbidden",
                    "admission webhook \"a.b.c\" denied the request: Forbidden",
                ),
            ),
            (
                json!({"code": 99999}),
                (
                    400,
                    "",
                    "admission webhook \"a.b.c\" denied the request without explanation",
                ),
            ),
        ] {
            let denied = denied("a.b.c", &status);
            let got = (denied.code, &*denied.reason, denied.message.as_str());
            assert_eq!(got, want, "{status}");
        }
    }

    #[test]
    fn an_answer_must_fit_its_request() {
        let request = |mutating| ReviewRequest {
            uid: "u".to_owned(),
            version: "v1",
            mutating,
            body: Bytes::new(),
        };
        let review = |response: Value| json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        for (mutating, response, want) in [
            (true, json!(null), "webhook response was absent"),
            (
                true,
                json!({"uid": "x"}),
                "expected response.uid=\"u\", got \"x\"",
            ),
            (
                true,
                json!({"uid": "u", "patch": "W10="}),
                "webhook returned response.patch but not response.patchType",
            ),
            (
                false,
                json!({"uid": "u", "patch": "W10="}),
                "validating webhook may not return response.patch",
            ),
        ] {
            let got = request(mutating)
                .check_response(&review(response))
                .map(drop);
            assert_eq!(got, Err(want.to_owned()));
        }
        let good = review(json!({"uid": "u", "allowed": true}));
        assert!(request(false).check_response(&good).is_ok());
        let older = json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"});
        assert_eq!(
            request(true).check_kind(&older),
            Err("failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion".to_owned())
        );
    }
}
