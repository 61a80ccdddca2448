//! Priority and fairness of requests.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kind::Kind;
use super::super::{cluster, printer};
use super::{PLAIN, Plain, empty};
use crate::objects::fields::{JsonObject, at, fill, inside, items, open, text};

const VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

pub(super) fn kinds() -> Vec<Kind> {
    let rules = Plain {
        status: Some(empty),
        generation: true,
        no_effect: Some("requests are not limited"),
        ..PLAIN
    };
    vec![
        cluster(
            VERSION,
            "flowschemas",
            "FlowSchema",
            Plain {
                defaults: |object| fill_number(open(object, "spec"), "matchingPrecedence", 1000),
                columns: "Name, PriorityLevel, MatchingPrecedence, DistinguisherMethod, Age, MissingPL",
                cells: schema_cells,
                ..rules
            },
        )
        .status(),
        cluster(
            VERSION,
            "prioritylevelconfigurations",
            "PriorityLevelConfiguration",
            Plain {
                defaults: default_level,
                columns: "Name, Type, NominalConcurrencyShares, Queues, HandSize, QueueLengthLimit, Age",
                cells: level_cells,
                ..rules
            },
        )
        .status(),
    ]
}

fn schema_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let dangling = items(object, "status.conditions")
        .iter()
        .find(|condition| text(condition, "type") == "Dangling")
        .map_or("?", |condition| text(condition, "status"));
    vec![
        printer::name(object),
        text(object, "spec.priorityLevelConfiguration.name").into(),
        at(object, "spec.matchingPrecedence").clone(),
        printer::or_none(text(object, "spec.distinguisherMethod.type")),
        printer::created(object, now),
        dangling.into(),
    ]
}

fn default_level(object: &mut JsonObject) {
    let spec = open(object, "spec");
    if let Some(limited) = inside(spec, "limited") {
        fill(limited, "nominalConcurrencyShares", 30);
        fill(limited, "lendablePercent", 0);
        if let Some(response) = inside(limited, "limitResponse")
            && let Some(queuing) = inside(response, "queuing")
        {
            fill_number(queuing, "queues", 64);
            fill_number(queuing, "handSize", 8);
            fill_number(queuing, "queueLengthLimit", 50);
        }
    }
    if let Some(exempt) = inside(spec, "exempt") {
        fill(exempt, "nominalConcurrencyShares", 0);
        fill(exempt, "lendablePercent", 0);
    }
}

/// Zero means that no number was given.
fn fill_number(object: &mut JsonObject, key: &str, number: i64) {
    if object.get(key).is_none_or(|found| found == 0) {
        object.insert(key.to_owned(), json!(number));
    }
}

fn level_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = text(object, "spec.type");
    let shares = match kind {
        "Exempt" => at(object, "spec.exempt.nominalConcurrencyShares"),
        _ => at(object, "spec.limited.nominalConcurrencyShares"),
    };
    let queuing = at(object, "spec.limited.limitResponse.queuing");
    let number = |value: &Value| match value {
        Value::Null => json!("<none>"),
        value => value.clone(),
    };
    vec![
        printer::name(object),
        kind.into(),
        number(shares),
        number(at(queuing, "queues")),
        number(at(queuing, "handSize")),
        number(at(queuing, "queueLengthLimit")),
        printer::created(object, now),
    ]
}
