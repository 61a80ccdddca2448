//! Turns the cpu and memory of a pod's containers into the resources of its tier.
//!
//! Native requests stay as 0: a ResourceQuota refuses pods without them, and the API server would copy native limits into
//! them. The pod's overhead stays native, because the API server refuses a changed overhead.

use serde_json::Value;

use super::defaults::FilledIn;
use super::fields::{CONTAINER_LISTS, accounts, describe, list_mut, name, qos_labels};
use super::limit_range::{LimitRange, needing_limit, refusing_zero};
use super::resources::{Native, ResourceField, WrittenQuantity, check_tier, read, set};
use super::{Mutation, Refused};
use crate::model::{QosClass, TierAccount};

/// Translates the pod if its class has an account of its own.
pub(super) fn translate(ranges: &[LimitRange], change: &mut Mutation) -> Result<(), Refused> {
    let labels = qos_labels(&change.pod);
    let class = labels
        .strict()
        .map_err(|error| Refused::one(format!("{error}; found: {}", describe(&labels))))?;
    let Some(account) = labels.account_of(class) else {
        return Ok(());
    };
    check_account(&change.pod, class, account)?;
    let original = change.pod.clone();
    let tier = Tiering {
        pod: &original,
        filled: FilledIn::of(&original),
        class,
        account,
        ranges,
    };
    let mut faults = Vec::new();
    for list in CONTAINER_LISTS {
        for container in list_mut(&mut change.pod, list) {
            for native in Native::ALL {
                if let Err(fault) = tier.translate(list, container, native) {
                    faults.push(fault);
                }
            }
        }
    }
    Refused::unless_empty(faults)?;
    tier.explain(change);
    Ok(())
}

/// Tier resources must be those of the pod's class, and the pod as a whole cannot have any.
pub(super) fn check_account(
    pod: &Value,
    class: QosClass,
    account: TierAccount,
) -> Result<(), Refused> {
    let foreign = accounts(pod).into_iter().find(|it| *it != account);
    if let Some(foreign) = foreign {
        return Err(Refused::one(foreign_account(class, Some(account), foreign)));
    }
    let pod_level = &pod["spec"]["resources"];
    let has = |list: &str| pod_level[list].as_object().is_some_and(|it| !it.is_empty());
    if has("requests") || has("limits") {
        return Err(Refused::one(format!(
            "spec.resources is set, but a pod of class {class} requests {} and {}, which Kubernetes allows in containers only: \
             move the resources to the containers",
            account.cpu(),
            account.memory()
        )));
    }
    Ok(())
}

pub(super) fn foreign_account(
    class: QosClass,
    account: Option<TierAccount>,
    foreign: TierAccount,
) -> String {
    let allowed = match account {
        Some(account) => format!("{} and {}", account.cpu(), account.memory()),
        None => "cpu and memory".to_owned(),
    };
    format!(
        "containers name {} or {}, but the pod is of class {class}, which uses {allowed}",
        foreign.cpu(),
        foreign.memory()
    )
}

/// The translation of one pod.
struct Tiering<'a> {
    /// As it was.
    pod: &'a Value,
    filled: FilledIn<'a>,
    class: QosClass,
    account: TierAccount,
    ranges: &'a [LimitRange],
}

impl Tiering<'_> {
    fn translate(&self, list: &str, container: &mut Value, native: Native) -> Result<(), String> {
        let keeps_limits = self.class == QosClass::MidLatencySensitive;
        let tier_name = |kind: ResourceField, container: &Value| {
            let names = container["resources"][kind.field()].as_object();
            names.map_or_else(
                || native.in_account(self.account).to_owned(),
                |names| native.spelling(self.account, names).to_owned(),
            )
        };
        let name_of = |kind| tier_name(kind, container);
        let (request_name, limit_name) = (
            name_of(ResourceField::Requests),
            name_of(ResourceField::Limits),
        );
        let tier_request = read(container, ResourceField::Requests, &request_name)?;
        let tier_limit = read(container, ResourceField::Limits, &limit_name)?;
        let names_tier = tier_request.is_some() || tier_limit.is_some();
        // What a LimitRange filled in is no wish of the user: it only counts where the user wished nothing.
        let own = |kind: ResourceField| -> Result<Option<WrittenQuantity>, String> {
            let written = read(container, kind, native.name())?;
            let is_default = names_tier && self.filled.has(list, name(container), kind, native);
            Ok(written.filter(|_| !is_default))
        };
        let (request, limit) = (own(ResourceField::Requests)?, own(ResourceField::Limits)?);
        let mixed = |kind: ResourceField, native_text: &str, tier: &str| {
            let name = name(container);
            let (kind, native) = (kind.field(), native.name());
            Err(format!(
                "container {name}: {kind} have both {native} ({native_text}) and {tier}: a pod of class {} uses {tier} only",
                self.class
            ))
        };
        let positive = |written: &Option<WrittenQuantity>| {
            written.clone().filter(WrittenQuantity::is_positive)
        };
        if let (Some(request), true) = (positive(&request), tier_request.is_some()) {
            return mixed(ResourceField::Requests, &request.text, &request_name);
        }
        let native_limit = positive(&limit);
        if let (Some(limit), true, false) = (&native_limit, tier_limit.is_some(), keeps_limits) {
            return mixed(ResourceField::Limits, &limit.text, &limit_name);
        }
        let new_limit = tier_limit.or_else(|| native_limit.as_ref().map(|it| it.to_tier(native)));
        // Without a limit, a request of 0 says as much as none; with one, none means the limit.
        let request = request.filter(|it| it.is_positive() || new_limit.is_some());
        let new_request = tier_request
            .or_else(|| request.map(|it| it.to_tier(native)))
            .or_else(|| new_limit.clone());
        self.check(
            container,
            native,
            &request_name,
            &limit_name,
            new_request.as_ref(),
            new_limit.as_ref(),
        )?;
        if let Some(written) = new_request {
            set(
                container,
                ResourceField::Requests,
                &request_name,
                Some(written.text.into()),
            );
        }
        set(
            container,
            ResourceField::Requests,
            native.name(),
            Some("0".into()),
        );
        if keeps_limits {
            let injected = new_limit.as_ref().map(|it| it.to_native(native).text);
            let kept = native_limit.map(|it| it.text).or(injected);
            let Some(kept) = kept else {
                return Err(format!(
                    "container {} has no limits.{}: a pod of class {} needs limits.cpu and limits.memory on every container, which \
                     make it Burstable",
                    name(container),
                    native.name(),
                    self.class
                ));
            };
            set(
                container,
                ResourceField::Limits,
                native.name(),
                Some(kept.into()),
            );
        } else {
            let is_zero = limit.is_some() && native_limit.is_none();
            let needs = needing_limit(self.ranges, native).is_some() || is_zero;
            set(
                container,
                ResourceField::Limits,
                native.name(),
                needs.then(|| "0".into()),
            );
        }
        if let Some(written) = new_limit {
            set(
                container,
                ResourceField::Limits,
                &limit_name,
                Some(written.text.into()),
            );
        }
        Ok(())
    }

    fn check(
        &self,
        container: &Value,
        native: Native,
        request_name: &str,
        limit_name: &str,
        request: Option<&WrittenQuantity>,
        limit: Option<&WrittenQuantity>,
    ) -> Result<(), String> {
        for (kind, resource, written) in [
            (ResourceField::Requests, request_name, request),
            (ResourceField::Limits, limit_name, limit),
        ] {
            if let Some(written) = written {
                check_tier(container, kind, resource, written)?;
            }
        }
        check_pair(container, native, self.account, request, limit)
    }

    fn explain(&self, change: &mut Mutation) {
        let changed: Vec<&str> = CONTAINER_LISTS
            .into_iter()
            .flat_map(|list| {
                let before = self.pod["spec"][list].as_array().into_iter().flatten();
                let after = change.pod["spec"][list].as_array().into_iter().flatten();
                before.zip(after).filter(|(before, after)| before != after)
            })
            .map(|(before, _)| name(before))
            .collect();
        change.warnings.extend(refusing_zero(self.ranges));
        if changed.is_empty() {
            return;
        }
        let (cpu, memory) = (self.account.cpu(), self.account.memory());
        let mut reasons = vec![format!(
            "the pod is of class {}: cpu and memory of {} become {cpu} and {memory}, and native requests 0",
            self.class,
            list_of(&changed)
        )];
        if self.class == QosClass::MidLatencySensitive {
            reasons.push("native limits stay, because they make the pod Burstable".to_owned());
        } else {
            for native in Native::ALL {
                reasons.extend(needing_limit(self.ranges, native).map(|range| {
                    format!(
                        "limits.{} is 0, because LimitRange {} would otherwise fill in a limit, which makes the pod Burstable",
                        native.name(),
                        range.name
                    )
                }));
            }
        }
        change.reasons.extend(reasons);
    }
}

/// A limit is not below its request, and reclaimed resources have both equal.
pub(super) fn check_pair(
    container: &Value,
    native: Native,
    account: TierAccount,
    request: Option<&WrittenQuantity>,
    limit: Option<&WrittenQuantity>,
) -> Result<(), String> {
    let resource = native.in_account(account);
    let name = name(container);
    let amount =
        |written: Option<&WrittenQuantity>| written.map_or("none".to_owned(), |it| it.text.clone());
    let found = || format!("request {}, limit {}", amount(request), amount(limit));
    let (wanted, most) = (request.map(|it| it.amount), limit.map(|it| it.amount));
    if account == TierAccount::Reclaimed && wanted != most {
        return Err(format!(
            "container {name}: {resource} needs equal request and limit, found {}",
            found()
        ));
    }
    if let Some((wanted, most)) = wanted.zip(most)
        && most < wanted
    {
        return Err(format!(
            "container {name}: the limit of {resource} is below its request: {}",
            found()
        ));
    }
    Ok(())
}

/// At most a few names, for messages.
fn list_of(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    let noun = if names.len() == 1 {
        "container"
    } else {
        "containers"
    };
    match names.len() - names.len().min(SHOWN) {
        0 => format!("{noun} {shown}"),
        more => format!("{noun} {shown} and {more} more"),
    }
}
