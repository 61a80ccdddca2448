//! Writes objects: small patches of exactly the object that was read.
//!
//! An object that is gone needs no patch, so that is no error. Only the metadata of a response is read: it has the
//! revision to wait for.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::Request,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Why a key could not be reconciled; the work queue retries it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", message_of(.0))]
    Request(#[from] kube::Error),
    #[error("invalid selector: {0}")]
    Selector(#[from] kube::core::ParseExpressionError),
}

/// The server's own message, without the client's wrapping.
pub fn message_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Whether the server answered that the object does not exist.
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// Whether the server answered that the object exists already.
pub fn is_already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

/// What became of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionAnswer {
    Evicted,
    /// The pod has ended, or another one has its name.
    Gone,
    /// A PodDisruptionBudget forbids it for now.
    Forbidden(String),
}

/// Whether the server refused for want of a permission.
pub fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_forbidden())
}

/// The part of an object that a patch changes.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    Object,
    Status,
}

/// Sends the writes of a controller.
#[derive(Clone)]
pub struct Requests {
    client: Client,
}

#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    metadata: ObjectMeta,
}

impl Requests {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    pub async fn create<K: Resource<DynamicType = ()>>(
        &self,
        namespace: Option<&str>,
        object: &Value,
    ) -> Result<ObjectMeta, kube::Error> {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request =
            Request::new(K::url_path(&(), namespace)).create(&PostParams::default(), body);
        self.send(request).await
    }

    /// As `create`, for a kind without a type: `collection` is the path of its objects.
    pub async fn create_at(
        &self,
        collection: &str,
        object: &Value,
    ) -> Result<ObjectMeta, kube::Error> {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        self.send(Request::new(collection).create(&PostParams::default(), body))
            .await
    }

    /// Asks the server itself, past all caches.
    pub async fn exists<K: Resource<DynamicType = ()>>(
        &self,
        target: &ObjectMeta,
    ) -> Result<bool, kube::Error> {
        let request = Request::new(path::<K>(target)).get(name_of(target), &Default::default());
        Ok(gone_is_none(self.send(request).await)?.is_some())
    }

    /// A merge patch: objects are merged, lists replaced, null removes. None when the object is gone.
    pub async fn merge<K: Resource<DynamicType = ()>>(
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

    /// As `merge`, for a kind without a type: `collection` is the path of its objects in the namespace.
    pub async fn merge_at(
        &self,
        collection: String,
        target: &ObjectMeta,
        part: Part,
        fields: Value,
    ) -> Result<Option<ObjectMeta>, kube::Error> {
        let patch = Patch::Merge(this(target, fields));
        self.patch(collection, target, part, patch).await
    }

    /// A JSON patch: its operations apply in their order, all or none. None when the object is gone.
    pub async fn json<K: Resource<DynamicType = ()>>(
        &self,
        target: &ObjectMeta,
        mut operations: Vec<Value>,
    ) -> Result<Option<ObjectMeta>, kube::Error> {
        if let Some(uid) = &target.uid {
            let test = json!({"op": "test", "path": "/metadata/uid", "value": uid});
            operations.insert(0, test);
        }
        let body = serde_json::to_vec(&operations).map_err(kube::Error::SerdeError)?;
        let request = http::Request::patch(format!("{}/{}", path::<K>(target), name_of(target)))
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::CONTENT_TYPE, "application/json-patch+json")
            .body(body)
            .map_err(kube::core::request::Error::BuildRequest);
        gone_is_none(self.send(request).await)
    }

    /// As `merge`, but fails when the object has changed since it was read.
    pub async fn merge_unchanged<K: Resource<DynamicType = ()>>(
        &self,
        target: &ObjectMeta,
        part: Part,
        mut fields: Value,
    ) -> Result<Option<ObjectMeta>, kube::Error> {
        fields["metadata"]["resourceVersion"] = target.resource_version.clone().into();
        self.merge::<K>(target, part, fields).await
    }

    /// A strategic patch: lists such as conditions are merged too. None when the object is gone.
    pub async fn strategic<K: Resource<DynamicType = ()>>(
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

    /// Deletes exactly this object, not another one of the same name.
    pub async fn delete<K: Resource<DynamicType = ()>>(
        &self,
        target: &ObjectMeta,
        options: DeleteParams,
    ) -> Result<(), kube::Error> {
        self.delete_at(&path::<K>(target), target, options).await
    }

    /// As `delete`, for a kind without a type: `collection` is the path of its objects in the namespace.
    pub async fn delete_at(
        &self,
        collection: &str,
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
        let request = Request::new(collection).delete(name_of(target), &options);
        gone_is_none(self.send(request).await).map(drop)
    }

    /// Asks the Eviction API once; another pod of the same name stays. With `dry_run` the server only says what it would do.
    pub async fn evict(
        &self,
        pod: &ObjectMeta,
        dry_run: bool,
    ) -> Result<EvictionAnswer, kube::Error> {
        let (namespace, name) = (pod.namespace.as_deref(), name_of(pod));
        let mut eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        });
        if dry_run {
            eviction["deleteOptions"]["dryRun"] = json!(["All"]);
        }
        let namespace = namespace.unwrap_or_default();
        let url = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
        let body = serde_json::to_vec(&eviction).map_err(kube::Error::SerdeError)?;
        let request = http::Request::post(url)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(kube::core::request::Error::BuildRequest);
        match self.send(request).await {
            Ok(_) => Ok(EvictionAnswer::Evicted),
            Err(error) => match &error {
                kube::Error::Api(status) if matches!(status.code, 404 | 409) => {
                    Ok(EvictionAnswer::Gone)
                }
                kube::Error::Api(status) if status.code == 429 => {
                    Ok(EvictionAnswer::Forbidden(status.message.clone()))
                }
                _ => Err(error),
            },
        }
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
        let response: Response = self.client.request(request).await?;
        Ok(response.metadata)
    }
}

fn path<K: Resource<DynamicType = ()>>(target: &ObjectMeta) -> String {
    K::url_path(&(), target.namespace.as_deref())
}

fn name_of(target: &ObjectMeta) -> &str {
    target.name.as_deref().unwrap_or_default()
}

/// The patch with the object's uid: the server refuses it for any other object.
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
        Err(error) if is_not_found(&error) => Ok(None),
        result => result.map(Some),
    }
}

/// A condition that is true since now, for a strategic patch.
pub fn true_condition(type_: &str, reason: &str, message: &str) -> Value {
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::now());
    json!({
        "type": type_, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": now,
    })
}
