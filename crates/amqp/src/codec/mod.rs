mod composite;
pub(crate) use composite::composite;
