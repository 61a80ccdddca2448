//! How objects are written: small patches of exactly the object that was looked at.
//!
//! An object that is gone by now needs nothing any more, so that is no failure. Only the metadata of an answer
//! is read: it says which revision to wait for.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::Request,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Why a key could not be brought up to date; it will be tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{}", brief(.0))]
    Request(#[from] kube::Error),
    #[error("the selector cannot be used: {0}")]
    Selector(#[from] kube::core::ParseExpressionError),
}

/// The server's own sentence, without the client's wrapping.
pub(crate) fn brief(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

pub(crate) fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

pub(crate) fn already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

/// Which part of an object a patch is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Object,
    Status,
}

/// A kind as far as requests care: where its objects are.
pub(crate) trait Place: Resource<DynamicType = ()> {}
impl<K: Resource<DynamicType = ()>> Place for K {}

#[derive(Clone)]
pub(crate) struct Requests {
    client: Client,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    metadata: ObjectMeta,
}

impl Requests {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(crate) async fn create<K: Place>(
        &self,
        namespace: Option<&str>,
        object: &Value,
    ) -> Result<ObjectMeta, kube::Error> {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request =
            Request::new(K::url_path(&(), namespace)).create(&PostParams::default(), body);
        self.send(request).await
    }

    /// A merge patch: objects are merged, lists replaced, null removes. None when the object is gone.
    pub(crate) async fn merge<K: Place>(
        &self,
        target: &ObjectMeta,
        part: Part,
        fields: Value,
    ) -> Result<Option<ObjectMeta>, kube::Error> {
        self.patch(
            path::<K>(target),
            target,
            part,
            Patch::Merge(this(target, fields)),
        )
        .await
    }

    /// As `merge`, but refused when the object has changed since it was looked at.
    pub(crate) async fn merge_unchanged<K: Place>(
        &self,
        target: &ObjectMeta,
        part: Part,
        mut fields: Value,
    ) -> Result<Option<ObjectMeta>, kube::Error> {
        fields["metadata"]["resourceVersion"] = target.resource_version.clone().into();
        self.merge::<K>(target, part, fields).await
    }

    /// A strategic patch: lists such as conditions are merged too. None when the object is gone.
    pub(crate) async fn strategic<K: Place>(
        &self,
        target: &ObjectMeta,
        part: Part,
        fields: Value,
    ) -> Result<Option<ObjectMeta>, kube::Error> {
        self.patch(
            path::<K>(target),
            target,
            part,
            Patch::Strategic(this(target, fields)),
        )
        .await
    }

    /// Deletes exactly this object and none that took its name.
    pub(crate) async fn delete<K: Place>(
        &self,
        target: &ObjectMeta,
        options: DeleteParams,
    ) -> Result<(), kube::Error> {
        let conditions = options.preconditions.unwrap_or_default();
        let options = DeleteParams {
            preconditions: Some(Preconditions {
                uid: target.uid.clone(),
                ..conditions
            }),
            ..options
        };
        let request = Request::new(path::<K>(target)).delete(name_of(target), &options);
        gone_is_none(self.send(request).await).map(drop)
    }

    async fn patch(
        &self,
        path: String,
        target: &ObjectMeta,
        part: Part,
        patch: Patch<Value>,
    ) -> Result<Option<ObjectMeta>, kube::Error> {
        let (request, options) = (Request::new(path), PatchParams::default());
        let name = name_of(target);
        let request = match part {
            Part::Object => request.patch(name, &options, &patch),
            Part::Status => request.patch_subresource("status", name, &options, &patch),
        };
        gone_is_none(self.send(request).await)
    }

    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<ObjectMeta, kube::Error> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let answer: Answer = self.client.request(request).await?;
        Ok(answer.metadata)
    }
}

fn path<K: Place>(target: &ObjectMeta) -> String {
    K::url_path(&(), target.namespace.as_deref())
}

fn name_of(target: &ObjectMeta) -> &str {
    target.name.as_deref().unwrap_or_default()
}

/// The patch with the object's uid, by which the server refuses it for any other object.
fn this(target: &ObjectMeta, mut fields: Value) -> Value {
    if let Some(uid) = &target.uid {
        fields["metadata"]["uid"] = uid.clone().into();
    }
    fields
}

fn gone_is_none(
    result: Result<ObjectMeta, kube::Error>,
) -> Result<Option<ObjectMeta>, kube::Error> {
    match result {
        Err(error) if is_gone(&error) => Ok(None),
        result => result.map(Some),
    }
}

/// A condition for a strategic patch, true since now.
pub(crate) fn holds_now(type_: &str, reason: &str, message: &str) -> Value {
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::now());
    json!({
        "type": type_, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": now,
    })
}
