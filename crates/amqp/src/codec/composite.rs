/// Declares a composite type.
macro_rules! composite {
    (
        $(#[$meta:meta])*
        pub struct $name:ident: $code:literal $symbol:literal $($untrimmed:ident)? {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty $(= $default:expr)?,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }
    };
}
pub(crate) use composite;
