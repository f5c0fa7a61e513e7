//! The description of the API itself.

use crate::endpoint::{Endpoint, Get};

pub static SHOW: Get<serde_json::Value> =
    Endpoint::get(&["/api/openapi.json"], "This description, in the format of OpenAPI");
