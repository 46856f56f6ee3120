//! Tests of the messages of `verify`.

use anyfn_core as _;
use anyfn_reflect as _;

use anyfn::Result;
use anyfn_parser::parse_func;
use anyfn_passes::verify;

#[test]
fn a_wrong_extent_and_a_wrong_stride_are_named() -> Result<()> {
    let beyond = "uint64(9223372036854775808)";
    for (buffer, expected) in [
        ("(-8,), \"float32\"".to_owned(), "an extent of buffer `T` is negative: -8"),
        ("(8,), \"float32\", strides=(-1,)".to_owned(), "a stride of buffer `T` is negative: -1"),
        (format!("({beyond},), \"float32\""), "an extent of buffer `T` must fit into int64"),
        (format!("(8,), \"float32\", strides=({beyond},)"), "a stride of buffer `T` must fit into int64"),
    ] {
        let source = format!("def f(n: int32):\n    T = alloc({buffer})\n    T[0] = 1.0\n");
        let error = verify(&parse_func(&source)?).unwrap_err();
        assert_eq!(error.kind(), "ValueError");
        assert!(error.message().contains(expected), "{error}");
    }
    Ok(())
}
