//! Rules in their source form and in their stored form. Other modules compile them.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::error::{Part, RuleError};
use crate::fold::{compare_names, fold_name, same_name};
use crate::given::Given;
use crate::limits;
use crate::sql;
use crate::system::SystemProperty;
use crate::value::Value;

/// The name of a rule, as its creator wrote it. Names that differ only in case are equal.
#[derive(Clone)]
pub struct RuleName(Arc<str>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleNameError {
    #[error("the rule name is empty; give it 1 to {} characters", limits::RULE_NAME_CHARS_MAX)]
    Empty,
    #[error("the rule name has {count} characters; at most {} are allowed", limits::RULE_NAME_CHARS_MAX)]
    TooLong { count: usize },
    #[error(
        "the rule name '{name}' has the character {found:?}; use letters, digits, '.', '-', '_', '~' and '$'"
    )]
    Character { name: String, found: char },
    #[error("the rule name '{name}' needs a letter or digit")]
    NoLetter { name: String },
}

impl RuleName {
    /// The name of the rule that a subscription has by default.
    pub const DEFAULT: &'static str = "$Default";

    pub fn parse(text: &str) -> Result<Self, RuleNameError> {
        let count = text.chars().count();
        if count == 0 {
            return Err(RuleNameError::Empty);
        }
        if count > limits::RULE_NAME_CHARS_MAX {
            return Err(RuleNameError::TooLong { count });
        }
        let name = || text.to_owned();
        let is_allowed = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '~' | '$');
        if let Some(found) = text.chars().find(|c| !is_allowed(*c)) {
            return Err(RuleNameError::Character { name: name(), found });
        }
        // A name of dots only would be a step in a path.
        if !text.chars().any(|c| c.is_alphanumeric() || c == '_') {
            return Err(RuleNameError::NoLetter { name: name() });
        }
        Ok(Self(text.into()))
    }

    pub fn default_rule() -> Self {
        Self(Self::DEFAULT.into())
    }

    /// Returns a name that sorts before every other name.
    pub(crate) fn lowest() -> Self {
        Self("".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PartialEq for RuleName {
    fn eq(&self, other: &Self) -> bool {
        same_name(&self.0, &other.0)
    }
}

impl Eq for RuleName {}

impl PartialOrd for RuleName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RuleName {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_names(&self.0, &other.0)
    }
}

impl Hash for RuleName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        fold_name(&self.0).hash(state);
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// A rule of a subscription: which messages it gets, and how its copies are changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub name: RuleName,
    pub filter: Filter,
    pub action: Option<Action>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    True,
    False,
    Sql(SqlFilter),
    Correlation(CorrelationFilter),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqlFilter {
    pub expression: String,
    /// Values for `@name`, with or without the `@`.
    pub parameters: Vec<(String, Given)>,
}

/// Matches a message that has all of these values. At least one is required.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorrelationFilter {
    pub correlation_id: Option<String>,
    pub message_id: Option<String>,
    pub to: Option<String>,
    pub reply_to: Option<String>,
    pub label: Option<String>,
    pub session_id: Option<String>,
    pub reply_to_session_id: Option<String>,
    pub content_type: Option<String>,
    pub properties: Vec<(String, Given)>,
}

/// Changes the copies of its rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Action {
    pub expression: String,
    pub parameters: Vec<(String, Given)>,
}

impl Rule {
    /// Returns the rule that matches every message.
    pub fn take_all() -> Self {
        Self { name: RuleName::default_rule(), filter: Filter::True, action: None }
    }

    /// Checks whether the rule is valid. The error names the reason and the place.
    pub fn check(&self) -> Result<(), RuleError> {
        match &self.filter {
            Filter::True | Filter::False => (),
            Filter::Sql(filter) => drop(sql::parse_filter(filter)?),
            Filter::Correlation(filter) => filter.check()?,
        }
        if let Some(action) = &self.action {
            sql::parse_action(action)?;
        }
        Ok(())
    }
}

impl CorrelationFilter {
    /// Returns the conditions on system properties in the order of the stored form.
    pub(crate) fn fields(&self) -> [(SystemProperty, Option<&str>); 8] {
        [
            (SystemProperty::CorrelationId, self.correlation_id.as_deref()),
            (SystemProperty::MessageId, self.message_id.as_deref()),
            (SystemProperty::To, self.to.as_deref()),
            (SystemProperty::ReplyTo, self.reply_to.as_deref()),
            (SystemProperty::Label, self.label.as_deref()),
            (SystemProperty::SessionId, self.session_id.as_deref()),
            (SystemProperty::ReplyToSessionId, self.reply_to_session_id.as_deref()),
            (SystemProperty::ContentType, self.content_type.as_deref()),
        ]
    }

    pub(crate) fn check(&self) -> Result<(), RuleError> {
        let fields = self.fields();
        if self.properties.is_empty() && fields.iter().all(|(_, value)| value.is_none()) {
            return Err(RuleError::NoCondition);
        }
        for (property, value) in fields {
            if let Some(text) = value {
                check_size(property.name(), text.len())?;
            }
        }
        if self.properties.len() > limits::CORRELATION_PROPERTY_COUNT_MAX {
            return Err(RuleError::TooManyProperties { count: self.properties.len() });
        }
        self.properties.iter().try_for_each(check_property)?;
        match repeated_name(&self.properties) {
            Some(name) => Err(RuleError::RepeatedProperty { name: name.to_owned() }),
            None => Ok(()),
        }
    }
}

fn check_property((name, value): &(String, Given)) -> Result<(), RuleError> {
    check_name(name)?;
    check_size(name, value.size_bytes())?;
    let found = match value.value() {
        Value::Null => "null",
        Value::Double(number) if number.is_nan() => "NaN",
        _ => return Ok(()),
    };
    Err(RuleError::NeverEqual { name: name.clone(), found })
}

fn check_name(name: &str) -> Result<(), RuleError> {
    let count = name.chars().count();
    if (1..=limits::PROPERTY_NAME_CHARS_MAX).contains(&count) {
        Ok(())
    } else {
        Err(RuleError::NameLength { count })
    }
}

fn check_size(name: &str, size: usize) -> Result<(), RuleError> {
    if size > limits::RULE_VALUE_SIZE_BYTES_MAX {
        return Err(RuleError::ValueTooLarge { name: name.to_owned(), size });
    }
    Ok(())
}

pub(crate) fn check_parameters(part: Part, parameters: &[(String, Given)]) -> Result<(), RuleError> {
    if parameters.len() > limits::PARAMETER_COUNT_MAX {
        return Err(RuleError::TooManyParameters { part, count: parameters.len() });
    }
    for (name, value) in parameters {
        check_name(name)?;
        check_size(name, value.size_bytes())?;
    }
    match repeated_name(parameters) {
        Some(name) => Err(RuleError::RepeatedParameter { part, name: name.to_owned() }),
        None => Ok(()),
    }
}

/// Returns the name of a parameter without its `@`.
pub(crate) fn bare_name(name: &str) -> &str {
    name.strip_prefix('@').unwrap_or(name)
}

fn repeated_name(pairs: &[(String, Given)]) -> Option<&str> {
    let mut names: Vec<&str> = pairs.iter().map(|(name, _)| bare_name(name)).collect();
    names.sort_by(|left, right| compare_names(left, right));
    names.windows(2).find_map(|pair| match pair {
        [left, right] if same_name(left, right) => Some(*right),
        _ => None,
    })
}
