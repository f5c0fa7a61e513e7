//! Shared access policies inside the descriptions of queues and topics.

use peeklock_access::{Access, ChangeError, PolicyChange, Right, Rights, Secret, check_name};
use peeklock_types::{EntityName, Timestamp};
use peeklock_web::xml::Element;

use super::property::wrong;
use crate::problem::Problem;
use crate::request::shown;

const KIND: &str = "SharedAccessAuthorizationRule";

/// A policy in a description.
pub(super) struct Draft {
    name: String,
    change: PolicyChange,
}

/// Returns the policies in a description; `None` if it has no element for them.
pub(super) fn read_policies(description: &Element) -> Result<Option<Vec<Draft>>, Problem> {
    let Some(element) = description.child("AuthorizationRules").filter(|element| !element.is_nil) else {
        return Ok(None);
    };
    let mut drafts: Vec<Draft> = Vec::new();
    for rule in &element.children {
        let draft = read_policy(rule)?;
        if drafts.iter().any(|before| before.name == draft.name) {
            return Err(Problem::bad(format!("two AuthorizationRules have the KeyName '{}'", draft.name)));
        }
        drafts.push(draft);
    }
    Ok(Some(drafts))
}

fn read_policy(rule: &Element) -> Result<Draft, Problem> {
    if rule.name != "AuthorizationRule" || rule.kind.as_deref().unwrap_or(KIND) != KIND {
        let text = format!("'{}' is not an AuthorizationRule of type {KIND}", shown(&rule.name));
        return Err(Problem::bad(text));
    }
    let text = |name: &str| rule.child(name).map(Element::trimmed).filter(|text| !text.is_empty());
    if let Some(kind) = rule.child("ClaimType").filter(|kind| kind.trimmed() != "SharedAccessKey") {
        return Err(wrong(kind, "SharedAccessKey"));
    }
    let name = text("KeyName").ok_or_else(|| Problem::bad("an AuthorizationRule has no KeyName"))?;
    check_name(name).map_err(|error| Problem::bad(error.to_string()))?;
    let rights = rule.child("Rights").map(|rights| rights.children.as_slice()).unwrap_or_default();
    let rights = rights
        .iter()
        .map(|right| Right::parse(right.trimmed()).ok_or_else(|| wrong(right, "Send, Listen or Manage")))
        .collect::<Result<Rights, Problem>>()?;
    if rights.is_empty() {
        return Err(Problem::bad(format!("the AuthorizationRule '{name}' has no AccessRights")));
    }
    let (primary, secondary) = (text("PrimaryKey").map(Secret::new), text("SecondaryKey").map(Secret::new));
    let change = PolicyChange { rights: Some(rights), primary, secondary };
    Ok(Draft { name: name.to_owned(), change })
}

/// Replaces the policies of an entity. Policies that are already equal are not changed, so that nothing is written and
/// no link is checked without need. Blocks on the disk.
pub(super) fn set_policies(
    access: &Access,
    entity: &EntityName,
    drafts: Vec<Draft>,
    now: Timestamp,
) -> Result<(), ChangeError> {
    let before = access.policies(Some(entity));
    for policy in &before {
        let is_wanted = drafts.iter().any(|draft| draft.name == policy.name);
        if !is_wanted && !access.is_declared(Some(entity), &policy.name) {
            access.remove(Some(entity), &policy.name)?;
        }
    }
    for Draft { name, change } in drafts {
        let old = before.iter().find(|policy| policy.name == name);
        let is_same = old.is_some_and(|old| {
            change.rights.is_none_or(|rights| rights == old.rights)
                && change.primary.as_ref().is_none_or(|key| *key == old.primary)
                && change.secondary.as_ref().is_none_or(|key| *key == old.secondary)
        });
        if !is_same {
            access.put(Some(entity), &name, change, now)?;
        }
    }
    Ok(())
}
