mod address;
mod sas;
