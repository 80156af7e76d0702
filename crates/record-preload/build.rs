//! Links the object so that its references to its own functions are not replaced by the program's functions of the same
//! names: an attached object stores the addresses of its own `malloc` and `free` in the program's slots.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
