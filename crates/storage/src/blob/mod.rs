use axum::body::Body;
use axum::response::Response;

use crate::auth::Permit;
use crate::call::Call;
use crate::problem::Problem;

pub(crate) async fn answer(_call: &Call<'_>, _permit: &Permit, _body: Body) -> Result<Response, Problem> {
    Err(Problem::not_supported("this call of the blob service is not supported"))
}
