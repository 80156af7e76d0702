//! The measuring program gives the allocator that it loads a clock, so it exports a function.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-examples=-rdynamic");
}
