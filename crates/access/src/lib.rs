//! Access control: shared access policies, the tokens signed with their keys, and the resulting claims.
//!
//! The crate depends neither on AMQP nor on HTTP. Time is an argument. Secrets have no printed form, so that none can
//! reach a log.

mod access;
mod claim;
mod jwt;
mod policy;
mod right;
mod scope;
mod secret;
mod store;
mod token;

pub use access::{Access, ChangeError, PolicyChange, Which};
pub use claim::Claim;
pub use jwt::{JwtError, JwtKeys, JwtOptions};
pub use policy::{POLICIES_PER_SCOPE_MAX, POLICY_NAME_CHARS_MAX, Policy, PolicyError, check_name};
pub use right::{Right, Rights};
pub use scope::{Scope, normalize, without_management};
pub use secret::{NoRandomBytes, SECRET_CHARS_MAX, Secret};
pub use store::OpenError;
pub use token::{AUDIENCE_BYTES_MAX, TOKEN_BYTES_MAX, TokenError, key_name, sign};
