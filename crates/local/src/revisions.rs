//! Revisions: the templates of StatefulSets and DaemonSets, as `kubectl rollout history` and `undo` read them.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::DeleteParams;
use reconcile::{Error, Expectations, Key, Object, Part, fnv1a, is_already_exists};
use serde_json::{Value, json};

use crate::{
    context::Context,
    objects::ControllerRevision,
    ownership::{claims, controlled_by},
};

/// Label of a pod: the template it has.
pub(crate) const HASH: &str = "controller-revision-hash";
/// The longest name of an owner in the name of a revision.
const LONGEST_PREFIX: usize = 223;

/// What has revisions.
pub(crate) struct RevisionOwner<'a, K> {
    pub(crate) object: &'a K,
    pub(crate) selector: &'a LabelSelector,
    pub(crate) template: &'a Value,
    pub(crate) collisions: i32,
    /// The label of a revision with the hash of its template.
    pub(crate) hash_label: &'static str,
}

/// The revision of the present template.
pub(crate) enum Present {
    /// It exists, as the newest of these, which are sorted from old to new.
    Known(Arc<ControllerRevision>, Vec<Arc<ControllerRevision>>),
    /// It was written just now: the next plan sees it.
    Written,
    /// Another template hashed to the same name.
    Collision,
}

#[derive(Debug)]
enum RevisionStep {
    Keep(Arc<ControllerRevision>),
    /// An older revision is the present one again.
    Renumber(Arc<ControllerRevision>, i64),
    Create(i64),
}

/// `revisions` are sorted from old to new.
fn plan(template: &Value, revisions: &[Arc<ControllerRevision>]) -> RevisionStep {
    let next = revisions
        .last()
        .map_or(1, |it| it.revision.saturating_add(1));
    let mut newest_first = revisions.iter().rev();
    match newest_first.find(|revision| revision.template() == *template) {
        None => RevisionStep::Create(next),
        Some(found) if found.revision.saturating_add(1) == next => {
            RevisionStep::Keep(found.clone())
        }
        Some(found) => RevisionStep::Renumber(found.clone(), next),
    }
}

/// The revisions beyond the history limit, oldest first; those in use stay and do not count.
fn beyond_history(
    revisions: &[Arc<ControllerRevision>],
    in_use: impl Fn(&ControllerRevision) -> bool,
    limit: Option<i32>,
) -> Vec<Arc<ControllerRevision>> {
    let limit = usize::try_from(limit.unwrap_or(10)).unwrap_or(0);
    let mut idle: Vec<_> = revisions.iter().filter(|it| !in_use(it)).cloned().collect();
    idle.truncate(idle.len().saturating_sub(limit));
    idle
}

/// Ten letters that name a template, without vowels so that no words appear.
pub(crate) fn template_hash(template: &Value, collisions: i32) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hash = fnv1a(format!("{template} {collisions}").as_bytes());
    let mut name = String::with_capacity(10);
    for _ in 0..10 {
        name.push(char::from(LETTERS[(hash % 27) as usize]));
        hash /= 27;
    }
    name
}

pub(crate) struct Revisions {
    context: Arc<Context>,
    expected: Expectations<ControllerRevision>,
}

impl Revisions {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        Self {
            context: context.clone(),
            expected: Expectations::new(context.revisions.clone()),
        }
    }

    pub(crate) fn satisfied(&self, key: &Key) -> bool {
        self.expected.satisfied(key)
    }

    /// Finds the revision of the present template, or creates it.
    pub(crate) async fn present<K: Object>(
        &self,
        key: &Key,
        owner: &RevisionOwner<'_, K>,
    ) -> Result<Present, Error> {
        let requests = &self.context.requests;
        let meta = owner.object.meta();
        let found = claims(meta, owner.selector, &self.context.revisions)?;
        if found.settle(&controlled_by(owner.object), requests).await? {
            return Ok(Present::Written);
        }
        let mut all = found.owned;
        all.sort_by_key(|it| (it.revision, it.metadata.name.clone()));
        match plan(owner.template, &all) {
            RevisionStep::Keep(revision) => return Ok(Present::Known(revision, all)),
            RevisionStep::Renumber(revision, number) => {
                let fields = json!({"revision": number});
                let patch =
                    requests.merge::<ControllerRevision>(&revision.metadata, Part::Object, fields);
                self.expected.wrote(key, patch.await?.as_ref());
            }
            RevisionStep::Create(number) => {
                let revision = new(owner, number);
                let namespace = Some(key.namespace.as_str());
                match requests
                    .create::<ControllerRevision>(namespace, &revision)
                    .await
                {
                    Ok(made) => self.expected.wrote(key, Some(&made)),
                    Err(error) if is_already_exists(&error) => return Ok(Present::Collision),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(Present::Written)
    }

    /// Deletes old revisions.
    pub(crate) async fn trim(
        &self,
        key: &Key,
        revisions: &[Arc<ControllerRevision>],
        in_use: impl Fn(&ControllerRevision) -> bool,
        limit: Option<i32>,
    ) -> Result<(), Error> {
        for revision in beyond_history(revisions, in_use, limit) {
            let (meta, options) = (&revision.metadata, DeleteParams::background());
            self.context
                .requests
                .delete::<ControllerRevision>(meta, options)
                .await?;
            let uid = meta.uid.as_deref().unwrap_or_default();
            self.expected.deleted(key, Key::of(meta), uid);
        }
        Ok(())
    }
}

fn new<K: Object>(owner: &RevisionOwner<'_, K>, number: i64) -> Value {
    let hash = template_hash(owner.template, owner.collisions);
    let reference = controlled_by(owner.object);
    let prefix = reference.name.get(..LONGEST_PREFIX);
    let name = format!("{}-{hash}", prefix.unwrap_or(&reference.name));
    let mut labels = owner.template["metadata"]["labels"].clone();
    labels[owner.hash_label] = hash.into();
    let mut template = owner.template.clone();
    template["$patch"] = "replace".into();
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": owner.object.meta().annotations,
            "ownerReferences": [reference],
        },
        "data": {"spec": {"template": template}},
        "revision": number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(image: &str, number: i64) -> Arc<ControllerRevision> {
        let data = json!({"spec": {"template": {"image": image, "$patch": "replace"}}});
        let revision = json!({"metadata": {"name": image}, "data": data, "revision": number});
        Arc::new(serde_json::from_value(revision).unwrap())
    }

    #[test]
    fn a_template_has_the_newest_revision() {
        let all = [revision("a", 1), revision("b", 4)];
        for (case, image, want) in [
            ("unchanged", "b", "Keep"),
            ("back", "a", "Renumber"),
            ("new", "c", "Create(5)"),
        ] {
            let step = format!("{:?}", plan(&json!({"image": image}), &all));
            assert!(step.starts_with(want), "{case}: {step}");
        }
        assert!(matches!(plan(&json!({}), &[]), RevisionStep::Create(1)));
    }

    #[test]
    fn old_revisions_go_unless_pods_use_them() {
        let all = ["a", "b", "c", "d"].map(|name| revision(name, 1));
        let gone = beyond_history(&all, |it| ["a", "d"].contains(&it.name()), Some(1));
        let gone: Vec<_> = gone.iter().map(|it| it.name()).collect();
        assert_eq!(gone, ["b"]);
    }
}
