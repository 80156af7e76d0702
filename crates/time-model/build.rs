//! The example `replay_on_object` gives the loaded allocator its clock, so it exports a function.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-examples=-rdynamic");
}
